"""Growth as opposed to noise: Kendall's rank test over blocks of time, and the slope by Theil and Sen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats

__all__ = ["Trend", "growth", "standing_share"]

_BLOCKS = 24
_LEAST_BLOCKS = 12  # fewer can hardly be certain to 1e-4
_LATELY = 0.1  # of all growth, in the last third of the time; a steady one has a third there


@dataclass(frozen=True, slots=True)
class Trend:
    """Growth that is no noise: per second, over `seconds`, from the first block to the `last`."""

    per_s: float
    seconds: float
    first: float
    last: float

    def horizon_s(self, limits: Thresholds) -> float:
        """Return how far ahead the trend may be followed, seconds."""
        return min(limits.ahead_s, limits.ahead_spans * self.seconds)


def growth(
    start_s: Floats, values: Floats, limits: Thresholds, least: float, by: Literal["peak", "low"] = "peak"
) -> Trend | None:
    """Return the trend of the blocks' peaks (or lows) when they grew by `least` at least.

    Unknown values are left out. What rose once and then stays does not grow.
    """
    known = ~np.isnan(values)
    at, known_values = start_s[known], values[known]
    if len(at) < _LEAST_BLOCKS or at[-1] - at[0] < 2 * limits.seen_s:
        return None
    edges = np.linspace(at[0], at[-1], _BLOCKS + 1)
    places = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, _BLOCKS - 1)
    numbers, first = np.unique(places, return_index=True)
    pick = np.maximum if by == "peak" else np.minimum
    blocks = pick.reduceat(known_values, first)
    seconds = float(at[-1] - at[0])
    if len(blocks) < _LEAST_BLOCKS or blocks[-1] - blocks[0] < least:
        return None
    if blocks[-1] - blocks[2 * len(blocks) // 3] < _LATELY * (blocks[-1] - blocks[0]):
        return None  # it rose once, and stays
    from scipy.stats import kendalltau, theilslopes  # only where something grew

    middles = (edges[numbers] + edges[numbers + 1]) / 2
    if not kendalltau(middles, blocks).pvalue < limits.certainty:
        return None
    slope = float(theilslopes(blocks, middles).slope)
    if slope * seconds < least:
        return None
    return Trend(slope, seconds, float(blocks[0]), float(blocks[-1]))


def standing_share(lengths: Floats) -> float:
    """Return the share of looks at a queue that found something in it."""
    known = lengths[~np.isnan(lengths)]
    return float((known > 0).mean()) if len(known) else 0.0
