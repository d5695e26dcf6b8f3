"""How far many places lie from the measured ones: `layout_fit.reach` for arrays, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.curve import Curve
from libra_plan.models.domain import SLACK, Domain
from libra_plan.models.forms import Places
from libra_plan.models.nnls import Array

__all__ = ["Reaches", "above_many", "reach_many"]

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
