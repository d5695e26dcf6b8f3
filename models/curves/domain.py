"""Where a fit may be asked: the convex hull of the measured places in log2 batch and log2 length.

How far many places lie from the measured ones: `layout_fit.reach` for arrays, rule by rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from libra_plan.models.costs.base import Array, Places

if TYPE_CHECKING:
    from libra_plan.models.curves.curve import Curve

__all__ = ["SLACK", "Domain", "Reaches", "Step", "above_many", "hull_of", "reach_many"]

SLACK = 1e-9
"""Octaves of rounding allowed at the edge."""


@dataclass(frozen=True, slots=True)
class Step:
    """The way back into the domain: `octaves` along one `axis` to the place `(x, y)`; 0 inside."""

    octaves: float
    axis: int
    place: tuple[float, float]


class Domain(msgspec.Struct, frozen=True):
    """A convex polygon, counter-clockwise, in log2 places; one or two corners when degenerate."""

    corners: tuple[tuple[float, float], ...]

    def contains(self, place: tuple[float, float]) -> bool:
        """Tell whether a log2 place lies in the hull (edges count)."""
        span = self.span(place[0], 0)
        return span is not None and span[0] - SLACK <= place[1] <= span[1] + SLACK

    def span(self, value: float, axis: int) -> tuple[float, float] | None:
        """Cut the hull where coordinate `axis` is `value`; gives the range of the other one."""
        cuts: list[float] = []
        for start, end in zip(self.corners, self.corners[1:] + self.corners[:1], strict=True):
            low, high = sorted((start, end), key=lambda corner: corner[axis])
            if not low[axis] - SLACK <= value <= high[axis] + SLACK:
                continue
            run = high[axis] - low[axis]
            if run <= SLACK:
                cuts += [low[1 - axis], high[1 - axis]]
                continue
            share = min(max((value - low[axis]) / run, 0.0), 1.0)
            cuts.append(low[1 - axis] + share * (high[1 - axis] - low[1 - axis]))
        return (min(cuts), max(cuts)) if cuts else None

    def step_back(self, place: tuple[float, float]) -> Step | None:
        """Find the shortest way into the hull along one axis; None when no single axis leads back."""
        steps: list[Step] = []
        for axis in (0, 1):
            span = self.span(place[1 - axis], 1 - axis)
            if span is None:
                continue
            nearest = min(max(place[axis], span[0]), span[1])
            back = (nearest, place[1]) if axis == 0 else (place[0], nearest)
            distance = abs(place[axis] - nearest)
            steps.append(Step(0.0 if distance <= SLACK else distance, axis, back))
        return min(steps, key=lambda step: step.octaves) if steps else None

    def clamp(self, place: tuple[float, float]) -> tuple[float, float]:
        """Bring a place into the hull: into the box of the hull, then back along the nearer axis."""
        (low_x, high_x), (low_y, high_y) = self.box()
        boxed = min(max(place[0], low_x), high_x), min(max(place[1], low_y), high_y)
        step = self.step_back(boxed)
        return boxed if step is None else step.place

    def box(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Give the least and greatest value of each axis."""
        first = [corner[0] for corner in self.corners]
        second = [corner[1] for corner in self.corners]
        return (min(first), max(first)), (min(second), max(second))


def hull_of(places: list[tuple[float, float]]) -> Domain:
    """Build the convex hull (Andrew's monotone chain); at least one place."""
    ordered = sorted(set(places))
    if len(ordered) == 1:
        return Domain((ordered[0],))
    lower, upper = _chain(ordered), _chain(ordered[::-1])
    return Domain(tuple(lower[:-1] + upper[:-1]))


def _chain(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
    chain: list[tuple[float, float]] = []
    for place in ordered:
        while len(chain) > 1 and _turn(chain[-2], chain[-1], place) <= 0:
            chain.pop()
        chain.append(place)
    return chain


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


Flags: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Reaches:
    """Octaves outside the hull (inf: no single axis leads back), in total, and where corrections are held.

    Arrays of shape (rows,), `held_at` (rows, 3).
    """

    octaves: Array
    total_octaves: Array
    held_at: Places


def reach_many(curve: Curve, places: Places) -> Reaches:
    """Measure how far places (rows, 3), all above 0, lie outside the hull."""
    logs = np.log2(places[:, :2])
    step, back = _step_back(curve.domain, logs)
    within = (step == 0)[:, None]
    clamped = np.where(within, back, _clamped(curve.domain, logs))
    output = np.clip(places[:, 2], *curve.outputs)
    output_octaves = np.abs(np.log2(places[:, 2] / output))
    total = np.abs(clamped - logs).sum(axis=1) + output_octaves
    lost = np.isinf(step) | ((step > 0) & (output_octaves > 0))
    held = np.exp2(np.where(lost[:, None], clamped, back))
    octaves = np.where(lost, np.inf, step + output_octaves)
    return Reaches(octaves, total, np.column_stack([held, output]))


def _span(domain: Domain, values: Array, axis: int) -> tuple[Array, Array]:
    """Cut the hull at many values of coordinate `axis`: least and greatest of the other; inf, -inf: none."""
    least, most = np.full(len(values), np.inf), np.full(len(values), -np.inf)
    for start, end in zip(domain.corners, domain.corners[1:] + domain.corners[:1], strict=True):
        low, high = sorted((start, end), key=lambda corner: corner[axis])
        on = (low[axis] - SLACK <= values) & (values <= high[axis] + SLACK)
        run = high[axis] - low[axis]
        ends = (low[1 - axis], high[1 - axis])
        if run <= SLACK:
            cuts = [np.full(len(values), end) for end in ends]
        else:
            share = np.clip((values - low[axis]) / run, 0.0, 1.0)
            cuts = [ends[0] + share * (ends[1] - ends[0])]
        for cut in cuts:
            least = np.where(on, np.minimum(least, cut), least)
            most = np.where(on, np.maximum(most, cut), most)
    return least, most


def _step_back(domain: Domain, logs: Array) -> tuple[Array, Array]:
    """Give the octaves along the nearer axis (inf: none leads back) and the places there, (rows, 2)."""
    octaves, backs = np.full(len(logs), np.inf), logs.copy()
    for axis in (0, 1):
        least, most = _span(domain, logs[:, 1 - axis], 1 - axis)
        there = least <= most
        nearest = np.minimum(np.maximum(logs[:, axis], least), most)
        distance = np.where(there, np.abs(logs[:, axis] - nearest), np.inf)
        distance = np.where(distance <= SLACK, 0.0, distance)
        nearer = distance < octaves
        octaves = np.where(nearer, distance, octaves)
        back = logs.copy()
        back[:, axis] = nearest
        backs = np.where(nearer[:, None], back, backs)
    return octaves, backs


def _clamped(domain: Domain, logs: Array) -> Array:
    """Bring places into the hull: into its box, then back along the nearer axis."""
    (low_x, high_x), (low_y, high_y) = domain.box()
    boxed = np.clip(logs, (low_x, low_y), (high_x, high_y))
    octaves, back = _step_back(domain, boxed)
    found: Array = np.where(np.isinf(octaves)[:, None], boxed, back)
    return found


def above_many(domain: Domain, logs: Array) -> Array:
    """Give `Domain.above` of many log2 places (rows, 2)."""
    (_, most_x), (_, most_y) = domain.box()
    x, y = np.minimum(logs[:, 0], most_x), np.minimum(logs[:, 1], most_y)
    beyond = (logs[:, 0] - x) + (logs[:, 1] - y)
    tallest = max(corner[0] for corner in domain.corners if corner[1] == most_y)
    widest = max(corner[1] for corner in domain.corners if corner[0] == most_x)
    (_, over), (_, out) = _span(domain, np.maximum(x, tallest), 0), _span(domain, np.maximum(y, widest), 1)
    step = np.minimum(np.where(np.isinf(over), 0.0, y - over), np.where(np.isinf(out), 0.0, x - out))
    octaves: Array = beyond + np.where(step > SLACK, step, 0.0)
    return octaves
