"""The domain of a fit: the convex hull of the measured places in log2 batch and log2 length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import msgspec
import numpy as np

from libra_plan.models.costs.base import Array, Flags, Places

__all__ = ["Domain", "Reaches", "hull_of"]

_SLACK = 1e-9
"""Octaves of rounding allowed at the edge."""


@dataclass(frozen=True, slots=True)
class Reaches:
    """Octaves outside the hull (inf: no single axis leads back), in total, and where corrections are held.

    Arrays of shape (rows,), `held_at` (rows, 3).
    """

    octaves: Array
    total_octaves: Array
    held_at: Places


class Domain(msgspec.Struct, frozen=True, dict=True):
    """A convex polygon, counter-clockwise, in log2 places; one or two corners when degenerate.

    Places are arrays (rows, 2) of log2 batch and log2 length.
    """

    corners: tuple[tuple[float, float], ...]

    def contains(self, logs: Array) -> Flags:
        """Whether places lie in the hull; edges count."""
        least, most = self.span(logs[:, 0], 0)
        inside: Flags = (least - _SLACK <= logs[:, 1]) & (logs[:, 1] <= most + _SLACK)
        return inside

    def span(self, values: Array, axis: int) -> tuple[Array, Array]:
        """Cut the hull where coordinate `axis` has these values: the range of the other one.

        Where the hull is not cut the least is inf and the greatest -inf.
        """
        low, high, start, end = self._edges[axis]
        at = values[:, None]
        on = (low - _SLACK <= at) & (at <= high + _SLACK)
        flat = high - low <= _SLACK
        cuts = start + np.clip((at - low) / np.where(flat, 1.0, high - low), 0.0, 1.0) * (end - start)
        least = np.where(on, np.where(flat, np.minimum(start, end), cuts), np.inf).min(axis=1)
        most = np.where(on, np.where(flat, np.maximum(start, end), cuts), -np.inf).max(axis=1)
        return least, most

    @cached_property
    def _edges(self) -> tuple[tuple[Array, ...], ...]:
        """The edges by axis: least and greatest coordinate on it, and the other coordinate at these ends."""
        pairs = list(zip(self.corners, self.corners[1:] + self.corners[:1], strict=True))
        found = []
        for axis in (0, 1):
            ends = [sorted(pair, key=itemgetter(axis)) for pair in pairs]
            low, high = (np.array([pair[side][axis] for pair in ends]) for side in (0, 1))
            start, end = (np.array([pair[side][1 - axis] for pair in ends]) for side in (0, 1))
            found.append((low, high, start, end))
        return tuple(found)

    def step_back(self, logs: Array) -> tuple[Array, Array]:
        """Return the octaves back into the hull along one axis (inf: none leads there), and the places."""
        octaves, backs = np.full(len(logs), np.inf), logs.copy()
        for axis in (0, 1):
            least, most = self.span(logs[:, 1 - axis], 1 - axis)
            nearest = np.minimum(np.maximum(logs[:, axis], least), most)
            distance = np.where(least <= most, np.abs(logs[:, axis] - nearest), np.inf)
            distance = np.where(distance <= _SLACK, 0.0, distance)
            nearer = distance < octaves
            octaves = np.where(nearer, distance, octaves)
            back = logs.copy()
            back[:, axis] = nearest
            backs = np.where(nearer[:, None], back, backs)
        return octaves, backs

    def clamp(self, logs: Array) -> Array:
        """Move places into the hull: into its box, then back along the nearer axis."""
        (low_x, high_x), (low_y, high_y) = self.box()
        boxed = np.clip(logs, (low_x, low_y), (high_x, high_y))
        octaves, back = self.step_back(boxed)
        found: Array = np.where(np.isinf(octaves)[:, None], boxed, back)
        return found

    def above(self, logs: Array) -> Array:
        """Return the octaves that places exceed the hull by; 0 where it holds something larger."""
        (_, most_x), (_, most_y) = self.box()
        x, y = np.minimum(logs[:, 0], most_x), np.minimum(logs[:, 1], most_y)
        beyond = (logs[:, 0] - x) + (logs[:, 1] - y)
        tallest = max(corner[0] for corner in self.corners if corner[1] == most_y)
        widest = max(corner[1] for corner in self.corners if corner[0] == most_x)
        (_, over), (_, out) = self.span(np.maximum(x, tallest), 0), self.span(np.maximum(y, widest), 1)
        step = np.minimum(np.where(np.isinf(over), 0.0, y - over), np.where(np.isinf(out), 0.0, x - out))
        octaves: Array = beyond + np.where(step > _SLACK, step, 0.0)
        return octaves

    def reach(self, places: Places, outputs: tuple[float, float]) -> Reaches:
        """Measure how far places (rows, 3), all above 0, lie outside the hull and the measured outputs."""
        logs = np.log2(places[:, :2])
        step, back = self.step_back(logs)
        clamped = np.where((step == 0)[:, None], back, self.clamp(logs))
        output = np.clip(places[:, 2], *outputs)
        output_octaves = np.abs(np.log2(places[:, 2] / output))
        total = np.abs(clamped - logs).sum(axis=1) + output_octaves
        lost = np.isinf(step) | ((step > 0) & (output_octaves > 0))
        held = np.exp2(np.where(lost[:, None], clamped, back))
        octaves = np.where(lost, np.inf, step + output_octaves)
        return Reaches(octaves, total, np.column_stack([held, output]))

    def box(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the least and greatest value of each axis."""
        first, second = zip(*self.corners, strict=True)
        return (min(first), max(first)), (min(second), max(second))


def hull_of(logs: Array) -> Domain:
    """Build the convex hull (Andrew's monotone chain) of places (rows, 2); at least one."""
    ordered = sorted({(x, y) for x, y in logs.tolist()})
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
