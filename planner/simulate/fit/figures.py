"""A fitted figure with where it is from, and the interval of a median."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["LEAST_STEPS", "Figure", "Found", "median_with_bounds", "rounded"]

LEAST_STEPS = 8
"""Steps or windows below which nothing is fitted: as `profile drift` asks for."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a world that was fitted. `low` to `high` hold it with 90 %; None: no interval is known.

    `samples` counts what it was taken from, which `of` names.
    """

    key: str
    value: float
    unit: str
    low: float | None
    high: float | None
    samples: int
    of: str
    how: str

    def text(self) -> str:
        """Say it in one sentence."""
        span = "" if self.low is None else f" ({self.low:.4g} to {self.high:.4g})"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.key} {self.value:.4g}{unit}{span} from {self.samples:,} {self.of}: {self.how}"


@dataclass
class Found:
    """What a fit came to: figures, what stays assumed and why, doubts, what is of profiles."""

    figures: list[Figure] = field(default_factory=list)
    assumed: list[tuple[str, str]] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    profiled: list[str] = field(default_factory=list)

    def keep(self, key: str, why: str) -> None:
        """Note that a figure stays the base's."""
        self.assumed.append((key, why))


def median_with_bounds(values: Sequence[float]) -> tuple[float, float, float]:
    """Give the median and its 90 % interval, by the order statistics that n/2 ± 0.82·√n count to."""
    ranked = np.sort(np.asarray(values, dtype=float))
    reach = 0.8225 * math.sqrt(len(ranked))
    low = max(0, math.floor(len(ranked) / 2.0 - reach))
    high = min(len(ranked) - 1, math.ceil(len(ranked) / 2.0 + reach) - 1)
    return float(np.median(ranked)), float(ranked[low]), float(ranked[high])


def rounded(value: float) -> float:
    """Give six digits: more would be noise in a file that people read."""
    return float(f"{value:.6g}")
