"""Price a task whose rate is the least of its roles' rates: exactly, with proof of the best.

For a rate λ every role takes its cheapest way to reach λ, so the best column is the best λ. Mixes
make λ continuous: a bound with the LP of each mix comes first, then only the mixes that could beat
the best column known are enumerated (fronts.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from libra_plan.planner.solvers.colgen.arrays import Floats, Ints
from libra_plan.planner.solvers.colgen.fronts import (
    Dual,
    Envelope,
    MixRole,
    RoleFront,
    TableRole,
    undominated,
)
from libra_plan.planner.solvers.colgen.joining import join
from libra_plan.planner.solvers.colgen.oracle import Found, Priced
from libra_plan.planner.solvers.colgen.relaxed import Form, Relaxed, Window, suffix_least

__all__ = ["Form", "MinRateTask"]

_TINY = 1e-12
_GOOD = 0.98  # of the bound: from here on a guess hardly beats what is known
_FIRST_LOOK = 0.3  # of a replica's price: how far below the bound pricing looks first


@dataclass(frozen=True)
class MinRateTask:
    """A task worth `weight` × its rate, run in one of its forms; the pricing oracle of one task."""

    weight: float
    forms: tuple[Form, ...]

    def price(self, prices: Floats, known: float, keep: int = 4) -> Priced:
        """Find the column of the highest reduced value, if it beats `known`, and some near it."""
        found: list[Found] = []
        best, bound = known, 0.0
        for number, form in enumerate(self.forms):
            pricing = _Pricing(self.weight, form, number, prices)
            upper, columns = pricing.best(best, keep)
            bound = max(bound, upper)
            found += columns
            best = max([best, *(each.reduced for each in columns)])
        return Priced(max(bound, known), tuple(found))

    def roughly(self, prices: Floats) -> Priced:
        """Bound the reduced value by splitting replicas, and give that column."""
        relaxed = [Relaxed(self.weight, form, prices) for form in self.forms]
        best = max((each for each in relaxed if len(each.rates)), key=_profit, default=None)
        if best is None or _profit(best) <= 0.0:
            return Priced(0.0, ())
        value, demand = best.column()
        return Priced(_profit(best), (Found(value, demand, None, value - float(demand @ prices)),))

    def plainly(self, prices: Floats) -> tuple[Found, ...]:
        """Round the best column of split replicas up, and one of half its rate."""
        columns = [
            column
            for number, form in enumerate(self.forms)
            for column in _Pricing(self.weight, form, number, prices).plainly()
        ]
        return tuple(sorted(columns, key=lambda each: -each.reduced))

    def near(self, prices: Floats, at_least: float, keep: int) -> tuple[Found, ...]:
        """List up to `keep` columns with a reduced value of `at_least`: each the best at its rate."""
        found = [
            column
            for number, form in enumerate(self.forms)
            for column in _Pricing(self.weight, form, number, prices).near(at_least, keep)
        ]
        return tuple(sorted(found, key=lambda each: -each.reduced)[:keep])

    def every(self, prices: Floats, at_least: float, limit: int) -> tuple[tuple[Found, ...], bool]:
        """List the columns with a reduced value of `at_least`; False when cut at `limit`."""
        found: list[Found] = []
        complete = True
        for number, form in enumerate(self.forms):
            columns, all_of_them = _Pricing(self.weight, form, number, prices).every(at_least, limit)
            found += columns
            complete &= all_of_them
        return tuple(found), complete

    def on_rows(self, weights: Floats) -> MinRateTask:
        """Give the same task with demands on other rows."""
        return MinRateTask(self.weight, tuple(form.on_rows(weights) for form in self.forms))

    def demand(self, handle: object) -> Floats:
        """Give what the column of a handle takes of each row."""
        number, picks = cast(tuple[int, Sequence[Sequence[tuple[int, int]]]], handle)
        roles: tuple[TableRole | MixRole, ...]
        roles = (*self.forms[number].tables, *self.forms[number].mixes)
        taken = [
            n * role.demand[role.config_id.index(config)]
            for role, own in zip(roles, picks, strict=True)
            for config, n in own
        ]
        return np.asarray(sum(taken), dtype=np.float64)


def _profit(relaxed: Relaxed) -> float:
    return float(relaxed.profit.max())


class _Pricing:
    """One form at one set of prices."""

    def __init__(self, weight: float, form: Form, number: int, prices: Floats) -> None:
        self.weight, self.form, self.number, self.prices = weight, form, number, prices
        self.relaxed = Relaxed(weight, form, prices)

    def best(self, known: float, keep: int) -> tuple[float, list[Found]]:
        """Find the best column if it beats `known`, and up to `keep` near it; bound them all."""
        if not len(self.relaxed.rates):
            return 0.0, []
        upper = float(self.relaxed.profit.max())
        if upper <= known + _TINY:
            return upper, []
        floor = max(known, self._guess()) if self.form.mixes and known < _GOOD * upper else known
        floor -= 1e-9 * max(1.0, abs(floor))
        window = self.relaxed.union(floor)
        *small, last = self._by_size() or [-1]
        fronts: dict[int, RoleFront] = {}
        for r in small:
            if window is not None:
                fronts[r] = self._front(r, window, floor, limit=None)
                window = self.relaxed.narrow(window, fronts, floor)
        if window is None:
            return known, []
        if last < 0:
            best, columns = self._combine([], known, keep, window)
            return max(known, best), columns
        best, columns = self._deepen(last, fronts, window, floor, known, keep)
        complete = all(front.complete for front in fronts.values())  # the last one, if it was cut
        return (max(known, best) if complete else max(known, window.best)), columns

    def _deepen(
        self, r: int, fronts: dict[int, RoleFront], window: Window, floor: float, known: float, keep: int
    ) -> tuple[float, list[Found]]:
        """Add the largest role, looking near the bound first: the nearer, the fewer ways there are.

        What a look finds is the best there is; only when it finds nothing is there more to look at.
        """
        step = _FIRST_LOOK * float(self.relaxed.mix_cost[r].max())
        step = max(step, 1e-4 * self.weight * float(window.rates[-1]))  # prices may be 0
        while True:
            at_least = max(floor, window.best - step)
            near = self.relaxed.narrow(window, fronts, at_least) if fronts else self.relaxed.union(at_least)
            best: float = -np.inf
            columns: list[Found] = []
            if near is not None:
                fronts[r] = self._front(r, near, at_least, limit=None)
                seen = self.relaxed.narrow(near, fronts, at_least)
                if seen is not None:
                    ways = [fronts[i] for i in range(len(self.form.mixes))]
                    best, columns = self._combine(ways, known, keep, near)
                if best >= at_least or not fronts[r].complete:
                    return best, columns
                del fronts[r]
            if at_least <= floor:
                return best, columns
            step *= 4

    def _by_size(self) -> list[int]:
        """List the mixes, the smallest first: what they really cost leaves the others less to look at."""
        return sorted(range(len(self.form.mixes)), key=lambda r: self.form.mixes[r].max_gpus)

    def near(self, at_least: float, keep: int) -> list[Found]:
        """List columns worth `at_least`: at each rate that some role gives exactly, the best one."""
        window = self.relaxed.union(at_least) if len(self.relaxed.rates) else None
        fronts = None if window is None else self._cheapest(window, at_least)
        if window is None or fronts is None:
            return []
        return self._combine(fronts, at_least, keep, window)[1]

    def _guess(self) -> float:
        """Round each mix up with its best item at the best relaxed rates; a true profit."""
        best = -np.inf
        order = np.argsort(-self.relaxed.profit)
        for at in np.unique(np.concatenate((order[:4], order[:: max(1, len(order) // 12)]))):
            rate = self.relaxed.rates[at]
            profit = self.relaxed.profit[at]
            for role, cost, least in zip(
                self.form.mixes, self.relaxed.mix_cost, self.relaxed.mix_least, strict=True
            ):
                rounded, _ = _round_up(role, cost, rate)
                profit += least[at] - rounded
            best = max(best, float(profit))
        return best

    def plainly(self) -> Iterator[Found]:
        """Make columns of simple integer mixes at two rates, the best relaxed one and half of it."""
        relaxed = self.relaxed
        if not len(relaxed.rates):
            return
        best = float(relaxed.rates[relaxed.profit.argmax()])
        for rate in (best, best / 2):
            points = [
                int(point[np.searchsorted(role.rates, rate * (1 - 1e-12))])
                for role, (_, point) in zip(self.form.tables, relaxed.table_cost, strict=True)
            ]
            mixes = []
            for role, cost in zip(self.form.mixes, relaxed.mix_cost, strict=True):
                _, picks = _round_up(role, cost, rate)
                counts = np.zeros(len(role.rate), dtype=np.int64)
                for item, number in picks:
                    counts[item] += number
                mixes.append(counts)
            if rate > 0 and all(counts.any() for counts in mixes):
                yield self.found(points, mixes)

    def _cheapest(self, window: Window, at_least: float) -> list[RoleFront] | None:
        """List each mix's Pareto ways for the rates of a window; None when no column is left there."""
        fronts: dict[int, RoleFront] = {}
        left: Window | None = window
        for r in self._by_size():
            if left is None:
                return None
            fronts[r] = self._front(r, left, at_least, limit=None)
            left = self.relaxed.narrow(left, fronts, at_least)
        return None if left is None else [fronts[r] for r in range(len(self.form.mixes))]

    def _front(self, r: int, window: Window, at_least: float, *, limit: int | None) -> RoleFront:
        """List one mix's ways that a column worth `at_least` may use at the rates of a window.

        Pareto ways only, or with a `limit` all of them.
        """
        role, cost = self.form.mixes[r], self.relaxed.mix_cost[r]
        worth = window.profit + window.least[r]  # of a rate to this role, all others at their least
        at = float(window.rates[window.profit.argmax()])
        dual, slack = _dual(role, cost, self.relaxed.envelopes[r], window.rates, worth, at, at_least)
        low, high, most = float(window.rates[0]), float(window.rates[-1]), float(worth.max()) - at_least
        if limit is None:
            return role.front(cost, dual, slack, low, high, most)
        return role.every(cost, dual, slack, low, high, most, limit)

    def _combine(
        self, fronts: Sequence[RoleFront], known: float, keep: int, window: Window
    ) -> tuple[float, list[Found]]:
        """Try every rate that some role gives exactly, each role at its least cost for it."""
        form = self.form
        if any(not len(front.rate) for front in fronts):
            return -np.inf, []
        rates = np.unique(np.concatenate([role.rates for role in form.tables] + [f.rate for f in fronts]))
        reach = min([role.reach for role in form.tables] + [float(f.rate[-1]) for f in fronts])
        rates = rates[(rates >= window.rates[0]) & (rates > 0) & (rates <= min(reach, window.rates[-1]))]
        if not len(rates):
            return -np.inf, []
        profit = self.weight * rates
        picks: list[Ints] = []
        for role, (least, point) in zip(form.tables, self.relaxed.table_cost, strict=True):
            at = np.searchsorted(role.rates, rates)
            profit = profit - least[at]
            picks.append(point[at])
        for front in fronts:
            suffix, way = suffix_least(front.cost)
            at = np.searchsorted(front.rate, rates)
            profit = profit - suffix[at]
            picks.append(way[at])
        return float(profit.max()), list(self._distinct(rates, profit, picks, fronts, known, keep))

    def _distinct(
        self,
        rates: Floats,
        profit: Floats,
        picks: list[Ints],
        fronts: Sequence[RoleFront],
        known: float,
        keep: int,
    ) -> Iterator[Found]:
        seen: set[tuple[int, ...]] = set()
        order = np.argsort(-profit, kind="stable")[: 8 * keep]
        for at in order:
            if seen and len(seen) >= keep:
                return
            key = tuple(int(pick[at]) for pick in picks)
            if key in seen or (profit[at] <= known + _TINY and not seen):
                continue
            seen.add(key)
            points = key[: len(self.form.tables)]
            mixes = [
                front.counts[way] for front, way in zip(fronts, key[len(self.form.tables) :], strict=True)
            ]
            yield self.found(points, mixes)

    def found(self, points: Sequence[int], mixes: Sequence[Ints]) -> Found:
        """Build the column from a point per table and counts per mix: its true rate and cost."""
        rate, moves = np.inf, 0.0
        demand = np.zeros(len(self.prices))
        handle: list[tuple[tuple[int, int], ...]] = []
        for table, point in zip(self.form.tables, points, strict=True):
            config, number = int(table.config[point]), int(table.number[point])
            rate = min(rate, float(table.rate[point]))
            moves += float(table.extra[point])
            demand += number * table.demand[config]
            handle.append(((table.config_id[config], number),))
        for mix, counts in zip(self.form.mixes, mixes, strict=True):
            rate = min(rate, float(counts @ mix.rate))
            of_config = np.zeros(len(mix.config_id))
            np.add.at(of_config, mix.item_config, counts)
            # Items of different configs may count the same held GPU; the column itself must not.
            moves += float(counts @ mix.extra) if mix.held is None else mix.held.moves(of_config)
            demand += of_config @ mix.demand
            handle.append(tuple((mix.config_id[c], int(n)) for c, n in enumerate(of_config) if n))
        value = self.weight * rate - moves
        return Found(value, demand, (self.number, tuple(handle)), value - float(demand @ self.prices))

    def every(self, at_least: float, limit: int) -> tuple[list[Found], bool]:
        """List all undominated columns worth `at_least`; False when there are too many."""
        union = self.relaxed.union(at_least) if len(self.relaxed.rates) else None
        cheapest = None if union is None else self._cheapest(union, at_least)
        if cheapest is None:
            return [], True
        found: list[Found] = []
        complete = all(front.complete for front in cheapest)
        for whole in self.relaxed.windows(at_least):
            window = self.relaxed.narrow(whole, dict(enumerate(cheapest)), at_least)
            if window is None:
                continue
            fronts = [self._front(r, window, at_least, limit=limit) for r in range(len(self.form.mixes))]
            if any(not len(front.rate) for front in fronts):
                complete &= all(front.complete for front in fronts)
                continue
            joined = join(self.relaxed, fronts, at_least, limit)
            complete &= joined.complete
            split = len(self.form.tables)
            for pick in joined.picks:
                mixes = [f.counts[w] for f, w in zip(joined.fronts, pick[split:], strict=True)]
                found.append(self.found(pick[:split].tolist(), mixes))
        if not found or not complete:
            return found, complete
        kept = undominated(
            np.array([each.demand for each in found]), np.array([each.value for each in found])
        )
        return [found[i] for i in kept], complete


def _round_up(role: MixRole, cost: Floats, rate: float) -> tuple[float, list[tuple[int, int]]]:
    """Give the cost of a simple integer mix of at least `rate`, and its items and their numbers.

    The cheapest items come first, then one more; infinite and none where that does not get there.
    """
    order = np.argsort(cost / role.rate, kind="stable")
    left, total, gpus = float(rate), 0.0, role.max_gpus
    best, taken, of_best = np.inf, list[tuple[int, int]](), list[tuple[int, int]]()
    for j in order:
        each, k = float(role.rate[j]), int(role.gpus[j])
        room = min(int(role.cap[j]), gpus // k if k else int(role.cap[j]))
        up = int(np.ceil(left / each - 1e-12))
        if up <= room and total + up * float(cost[j]) < best:
            best, of_best = total + up * float(cost[j]), [*taken, (int(j), up)]
        number = min(room, int(left / each))
        left -= number * each
        total += number * float(cost[j])
        gpus -= number * k
        taken.append((int(j), number))
        if left <= 1e-12 or total >= best:
            break
    return (total, taken) if left <= 1e-12 and total < best else (best, of_best)


def _dual(
    role: MixRole, cost: Floats, least: Envelope, rates: Floats, worth: Floats, at: float, at_least: float
) -> tuple[Dual, float]:
    """Pick the prices that leave the least slack: any are valid, the LP's around a rate are best."""
    here = int(np.searchsorted(least.rate, at * (1 - 1e-12))) - 1
    best = (Dual(0.0, 0.0), np.inf)
    for step in range(max(0, here - 1), min(len(least.gpu), here + 2)):
        dual = least.dual(step)
        base = float((np.minimum(0.0, dual.losses(role, cost)) * role.cap).sum()) - dual.gpu * role.max_gpus
        slack = float((worth - dual.rate * rates).max()) - base - at_least
        if slack < best[1]:
            best = (dual, slack)
    return best
