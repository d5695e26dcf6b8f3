"""The relaxed pricing problem: at which rates a configuration can be worth so much, and what roles cost there.

Mixes cost what the LP of their knapsack does, so profits here bound those of whole configurations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.fronts import MixRole, RoleFront, TableRole

__all__ = ["Form", "Relaxed", "Window", "suffix_least"]

_TINY = 1e-12


@dataclass(frozen=True)
class Form:
    """One form of a task: its roles side by side."""

    tables: tuple[TableRole, ...]
    mixes: tuple[MixRole, ...]

    def on_rows(self, weights: Floats) -> Form:
        """Give the same form with demands on other rows."""
        return Form(
            tuple(replace(role, demand=role.demand @ weights) for role in self.tables),
            tuple(replace(role, demand=role.demand @ weights) for role in self.mixes),
        )


@dataclass(frozen=True)
class Window:
    """Rates, with the relaxed profit there, each mix's least cost, and the best profit."""

    best: float
    rates: Floats
    profit: Floats
    least: list[Floats]


class Relaxed:
    """One form at one set of prices: the profit at every rate where it can be highest."""

    def __init__(self, weight: float, form: Form, prices: Floats) -> None:
        self.weight, self.form, self.prices = weight, form, prices
        self.table_cost = [role.cheapest(role.demand @ prices) for role in form.tables]
        self.mix_cost = [role.costs(role.demand @ prices) for role in form.mixes]
        self.envelopes = [role.envelope(cost) for role, cost in zip(form.mixes, self.mix_cost, strict=True)]
        reach = min([*(role.reach for role in form.tables), *(role.reach for role in form.mixes)])
        points = [role.rates for role in form.tables] + [each.rate for each in self.envelopes]
        rates = np.unique(np.concatenate([*points, [reach]]))
        self.rates: Floats = rates[(rates > 0) & (rates <= reach)]
        self.mix_least = [np.interp(self.rates, each.rate, each.cost) for each in self.envelopes]
        steps = np.unique(np.concatenate([role.rates for role in form.tables] or [np.zeros(0)]))
        self.segment = np.searchsorted(steps, self.rates)
        least = sum(self.mix_least, self.tables_at(self.rates))
        self.profit: Floats = self.weight * self.rates - least

    def configuration(self) -> tuple[float, Floats]:
        """Give value and demand of the best configuration when replicas of mixes may be split."""
        at = int(self.profit.argmax())
        rate = float(self.rates[at])
        value, demand = self.weight * rate, np.zeros(len(self.prices))
        for table, (_, points) in zip(self.form.tables, self.table_cost, strict=True):
            point = points[np.searchsorted(table.rates, rate)]
            demand += table.number[point] * table.demand[table.config[point]]
            value -= float(table.extra[point])
        for mix, envelope in zip(self.form.mixes, self.envelopes, strict=True):
            taken = envelope.replicas(rate)
            demand += taken @ mix.demand[mix.item_config]
            value -= float(taken @ mix.extra)
        return value, demand

    def tables_at(self, rates: Floats) -> Floats:
        """Give what all table roles cost together at each rate."""
        cost = np.zeros(len(rates))
        for role, (least, _) in zip(self.form.tables, self.table_cost, strict=True):
            cost += least[np.searchsorted(role.rates, rates)]
        return cost

    def windows(self, at_least: float) -> list[Window]:
        """List the ranges of rates at which such a profit is possible, best first.

        Between two rates of the tables these cost the same, and the relaxed profit is concave and
        linear between neighbours of `rates`; it jumps down just above a table's rate.
        """
        found = []
        good = np.flatnonzero(self.profit >= at_least)
        for own in np.split(good, np.flatnonzero(np.diff(self.segment[good])) + 1):
            if len(own):
                found.append(self._window(int(own[0]), int(own[-1]), at_least))
        return sorted(found, key=lambda each: -each.best)

    def union(self, at_least: float) -> Window | None:
        """Put all windows into one, by rising rates."""
        found = sorted(self.windows(at_least), key=lambda each: float(each.rates[0]))
        if not found:
            return None
        return Window(
            max(each.best for each in found),
            np.concatenate([each.rates for each in found]),
            np.concatenate([each.profit for each in found]),
            [np.concatenate([each.least[r] for each in found]) for r in range(len(self.form.mixes))],
        )

    def _window(self, first: int, last: int, at_least: float) -> Window:
        rates, profit = self.rates[first : last + 1], self.profit[first : last + 1]
        least = [own[first : last + 1] for own in self.mix_least]
        rate, value, ends = self._end(first, at_least, True)
        rates, profit = np.concatenate(([rate], rates)), np.concatenate(([value], profit))
        least = [np.concatenate(([end], own)) for end, own in zip(ends, least, strict=True)]
        if last + 1 < len(self.rates) and self.segment[last + 1] == self.segment[last]:
            rate, value, ends = self._end(last + 1, at_least, False)
            rates, profit = np.concatenate((rates, [rate])), np.concatenate((profit, [value]))
            least = [np.concatenate((own, [end])) for end, own in zip(ends, least, strict=True)]
        return Window(float(self.profit[first : last + 1].max()), rates, profit, least)

    def narrow(self, window: Window, fronts: Mapping[int, RoleFront], at_least: float) -> Window | None:
        """Narrow a window by what some mixes really cost; None when no rate is left.

        Between two points of the grid tables and these mixes cost what they do at the upper one,
        and the others' least costs are linear, so both ends of each step are looked at.
        """
        if any(not len(front.rate) for front in fronts.values()):
            return None
        low, high = float(window.rates[0]), float(window.rates[-1])
        inner = self.rates[(self.rates > low) & (self.rates < high)]
        grid = np.unique(np.concatenate([front.rate for front in fronts.values()] + [window.rates, inner]))
        grid = grid[(grid >= low) & (grid <= high)]
        left = np.append(low, grid[:-1])
        own = [self._ends(r, fronts.get(r), left, grid) for r in range(len(self.form.mixes))]
        tables = self.tables_at(grid)
        lower = self.weight * left - sum((a for a, _ in own), tables)
        upper = self.weight * grid - sum((b for _, b in own), tables)
        good = np.flatnonzero(np.maximum(lower, upper) >= at_least)
        if not len(good):
            return None
        profit = _paired(lower[good], upper[good])
        costs = [_paired(a[good], b[good]) for a, b in own]
        return Window(float(profit.max()), _paired(left[good], grid[good]), profit, costs)

    def _ends(self, r: int, front: RoleFront | None, left: Floats, right: Floats) -> tuple[Floats, Floats]:
        """Give what a mix costs at both ends of each step, really or at least."""
        if front is None:
            least = self.envelopes[r]
            return np.interp(left, least.rate, least.cost), np.interp(right, least.rate, least.cost)
        suffix = np.append(suffix_least(front.cost)[0], np.inf)
        exact = suffix[np.searchsorted(front.rate, right)]
        return exact, exact

    def _end(self, segment: int, at_least: float, front: bool) -> tuple[float, float, list[float]]:
        """Give where the relaxed profit crosses `at_least` in the segment that ends at a rate."""
        upper = float(self.rates[segment])
        lower = float(self.rates[segment - 1]) if segment else 0.0
        high = float(self.profit[segment])
        own_low = [float(own[segment - 1]) if segment else 0.0 for own in self.mix_least]
        own_high = [float(own[segment]) for own in self.mix_least]
        low = high - self.weight * (upper - lower) + sum(own_high) - sum(own_low)
        share = 0.0 if abs(high - low) <= _TINY else (at_least - low) / (high - low)
        if front:
            share = 0.0 if low >= at_least else min(1.0, max(0.0, share))
        else:
            share = 0.0 if low < at_least else min(1.0, max(0.0, share))
        own = [a + share * (b - a) for a, b in zip(own_low, own_high, strict=True)]
        return lower + share * (upper - lower), low + share * (high - low), own


def _paired(left: Floats, right: Floats) -> Floats:
    """Put two arrays together, element by element in turn."""
    paired: Floats = np.column_stack((left, right)).ravel()
    return paired


def suffix_least(cost: Floats) -> tuple[Floats, Ints]:
    """Give the least cost from each point on, and where it is."""
    back = cost[::-1]
    least = np.minimum.accumulate(back)
    first = np.concatenate(([True], back[1:] < least[:-1]))
    where = np.maximum.accumulate(np.where(first, np.arange(len(back)), 0))
    return least[::-1], (len(cost) - 1 - where)[::-1]
