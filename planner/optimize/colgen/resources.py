"""What tasks share: rows with limits, and units (GPUs opened for sharing) that turn one into another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.optimize.colgen.arrays import Floats

__all__ = ["Resources"]

_EPS = 1e-9


@dataclass(frozen=True)
class Resources:
    """Rows `names[i]`: Σ demand ≤ `limit[i]`, all demands of configurations ≥ 0.

    `units[u]` is what one whole unit of kind u takes of each row; a negative number is given. A GPU
    opened for sharing takes one of the row of whole GPUs and gives 4 quarters and its memory. As
    many units are opened as the configurations need.
    """

    names: tuple[str, ...]
    limit: Floats
    units: Floats

    def opened(self, demand: Floats) -> Floats:
        """Count the units of each kind that a demand needs; rows they give have limit 0 or more."""
        number = np.zeros(len(self.units))
        for u, unit in enumerate(self.units):
            rows = np.flatnonzero(unit < 0)
            if len(rows):
                number[u] = np.ceil(np.max((demand[rows] - self.limit[rows]) / -unit[rows]) - _EPS)
        return np.maximum(number, 0.0)

    def most_units(self) -> Floats:
        """Count the units of each kind that all rows have room for."""
        most = np.full(len(self.units), np.inf)
        for u, unit in enumerate(self.units):
            takes = unit > 0
            most[u] = np.floor((self.limit[takes] / unit[takes]).min(initial=1e9))
        return most

    def room(self, demand: Floats) -> Floats:
        """Give what is left of each row beside a demand, its units opened; negative: too much."""
        left: Floats = self.limit - demand - self.opened(demand) @ self.units
        return left

    def fits(self, demand: Floats) -> bool:
        """Tell whether every row has room."""
        return bool(self.fitting(demand[None, :])[0])

    def fitting(self, demand: Floats) -> NDArray[np.bool_]:
        """Tell of many demands, shape (demands, rows), for which every row has room."""
        left = self.limit - demand
        for unit in self.units:
            rows = np.flatnonzero(unit < 0)
            if len(rows):
                opened = np.ceil((-left[:, rows] / -unit[rows]).max(axis=1) - _EPS)
                left = left - np.maximum(opened, 0.0)[:, None] * unit
        short = left < -_EPS * np.maximum(1.0, self.limit)
        return np.asarray(~short.any(axis=1), dtype=np.bool_)

    def beside(self, demand: Floats) -> Resources:
        """Give what is left beside a demand; rows that units give may then be below 0."""
        return Resources(self.names, self.limit - demand, self.units)

    def scaled(self, share: float) -> Resources:
        """Give a share of every limit: prices of a sample of tasks are found on it."""
        return Resources(self.names, self.limit * share, self.units)
