"""A task whose configurations are all known: prices are answered by looking at every one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.oracle import Found, Priced

__all__ = ["TableOracle"]


@dataclass(frozen=True)
class TableOracle:
    """Configurations as arrays: `values`, shape (configurations,), and `demands`, shape (configurations, rows).

    A configuration's handle is its number.
    """

    values: Floats
    demands: Floats

    def price(self, prices: Floats, known: float, keep: int = 4, slack: float = 0.0) -> Priced:
        """Find the best configurations at these prices; none of the task is above `bound`."""
        reduced = self._reduced(prices)
        best = self._best(reduced, keep)
        bound = max(0.0, float(reduced.max(initial=0.0)))
        return Priced(bound, tuple(self._found(reduced, n) for n in best if reduced[n] > known + 1e-12))

    def roughly(self, prices: Floats) -> Priced:
        """Find the best configuration: looking at every one is cheap enough."""
        return self.price(prices, 0.0, 1)

    def plainly(self, prices: Floats) -> tuple[Found, ...]:
        """Give the best configuration."""
        return self.price(prices, 0.0, 1).configurations

    def near(self, prices: Floats, at_least: float, keep: int) -> tuple[Found, ...]:
        """List up to `keep` configurations of the highest reduced values from `at_least` on."""
        reduced = self._reduced(prices)
        return tuple(self._found(reduced, n) for n in self._best(reduced, keep) if reduced[n] >= at_least)

    def every(self, prices: Floats, at_least: float, limit: int) -> tuple[tuple[Found, ...], bool]:
        """List all configurations with a reduced value of `at_least`; False when cut at `limit`."""
        reduced = self._reduced(prices)
        numbers = np.flatnonzero(reduced >= at_least)
        return tuple(self._found(reduced, int(n)) for n in numbers[:limit]), len(numbers) <= limit

    def on_rows(self, weights: Floats) -> TableOracle:
        """Give the same configurations with demands on other rows."""
        return TableOracle(self.values, self.demands @ weights)

    def demand(self, handle: object) -> Floats:
        """Give what the configuration of this number takes of each row."""
        assert isinstance(handle, int)
        demand: Floats = self.demands[handle]
        return demand

    def _reduced(self, prices: Floats) -> Floats:
        return self.values - self.demands @ prices

    def _best(self, reduced: Floats, keep: int) -> Ints:
        """List the numbers of the highest ones, best first; of equals the first."""
        return np.argsort(-reduced, kind="stable")[:keep]

    def _found(self, reduced: Floats, number: int) -> Found:
        return Found(float(self.values[number]), self.demands[number], int(number), float(reduced[number]))
