"""Price a task whose rate is the least of its roles' rates: exactly, with proof of the best.

For a rate λ every role takes its cheapest way to reach λ, so the best column is the best λ. Mixes
make λ continuous: a bound with the LP of each mix comes first, then only the mixes that could beat
the best column known are enumerated (fronts.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.solvers.colgen.arrays import Floats, Ints
from libra_plan.planner.solvers.colgen.fronts import MixRole, RoleFront, TableRole, undominated
from libra_plan.planner.solvers.colgen.oracle import Found, Priced

__all__ = ["Form", "MinRateTask"]

_TINY = 1e-12


@dataclass(frozen=True)
class Form:
    """One form of a task: its roles side by side."""

    tables: tuple[TableRole, ...]
    mixes: tuple[MixRole, ...]


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


class _Pricing:
    """One form at one set of prices."""

    def __init__(self, weight: float, form: Form, number: int, prices: Floats):
        self.weight, self.form, self.number, self.prices = weight, form, number, prices
        self.table_cost = [role.cheapest(role.demand @ prices) for role in form.tables]
        self.mix_cost = [role.costs(role.demand @ prices) for role in form.mixes]
        self.envelopes = [role.envelope(cost) for role, cost in zip(form.mixes, self.mix_cost, strict=True)]
        self._relax()

    def _relax(self) -> None:
        """Bound the profit at every rate where it can be highest."""
        form = self.form
        reach = min([role.reach for role in (*form.tables, *form.mixes)])
        points = [role.rates for role in form.tables] + [rate for rate, _ in self.envelopes]
        rates = np.unique(np.concatenate([*points, [reach]]))
        self.rates = rates[(rates > 0) & (rates <= reach)]
        table = np.zeros(len(self.rates))
        for role, (least, _) in zip(form.tables, self.table_cost, strict=True):
            table += least[np.searchsorted(role.rates, self.rates)]
        mixes = [np.interp(self.rates, rate, cost) for rate, cost in self.envelopes]
        self.mix_least = mixes
        steps = np.unique(np.concatenate([role.rates for role in form.tables] or [np.zeros(0)]))
        self.segment = np.searchsorted(steps, self.rates)
        self.profit = self.weight * self.rates - table - sum(mixes, np.zeros(len(self.rates)))

    def best(self, known: float, keep: int) -> tuple[float, list[Found]]:
        """Find the best column if it beats `known`, and up to `keep` near it; bound them all."""
        if not len(self.rates):
            return 0.0, []
        upper = float(self.profit.max())
        if upper <= known + _TINY:
            return upper, []
        # A rounded guess first: the better the column known, the fewer mixes there are to see.
        guess = max(known, self._guess()) if self.form.mixes else known
        window = self._union(guess - 1e-9 * max(1.0, abs(guess)))
        fronts = window and self._cheapest(window, guess - 1e-9 * max(1.0, abs(guess)))
        if window is None or fronts is None:
            return known, []
        best, columns = self._combine(fronts, known, keep, window)
        complete = all(front.complete for front in fronts)
        return (max(known, best) if complete else upper), columns

    def near(self, at_least: float, keep: int) -> list[Found]:
        """List columns worth `at_least`: at each rate that some role gives exactly, the best one."""
        window = self._union(at_least) if len(self.rates) else None
        fronts = window and self._cheapest(window, at_least)
        if window is None or fronts is None:
            return []
        return self._combine(fronts, at_least, keep, window)[1]

    def _guess(self) -> float:
        """Round each mix up with its best item at the best relaxed rates; a true profit."""
        best = -np.inf
        for at in np.argsort(-self.profit)[:6]:
            rate = self.rates[at]
            profit = self.profit[at]
            for role, cost, least in zip(self.form.mixes, self.mix_cost, self.mix_least, strict=True):
                rounded = _round_up(role, cost, rate)
                profit += least[at] - rounded
            best = max(best, float(profit))
        return best

    def _cheapest(self, window: _Window, at_least: float) -> list[RoleFront] | None:
        """List each mix's Pareto ways for the rates of a window; None when no column is left there.

        The smallest roles come first: what they really cost leaves the larger ones less to look at.
        """
        fronts: dict[int, RoleFront] = {}
        left: _Window | None = window
        for r in sorted(range(len(self.form.mixes)), key=lambda r: self.form.mixes[r].max_gpus):
            if left is None:
                return None
            fronts[r] = self._front(r, left, at_least, prune=True)
            left = self._narrow(left, fronts, at_least)
        return None if left is None else [fronts[r] for r in range(len(self.form.mixes))]

    def _front(self, r: int, window: _Window, at_least: float, *, prune: bool) -> RoleFront:
        """List one mix's ways that a column worth `at_least` may use at the rates of a window."""
        role, cost = self.form.mixes[r], self.mix_cost[r]
        worth = window.profit + window.least[r]  # of a rate to this role, all others at their least
        at = float(window.rates[window.profit.argmax()])
        slope, slack = _slope(role, cost, window.rates, worth, at, at_least)
        search = role.front if prune else role.every
        low, high = float(window.rates[0]), float(window.rates[-1])
        return search(cost, slope, slack, low, high, float(worth.max()) - at_least)

    def _windows(self, at_least: float) -> list[_Window]:
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

    def _union(self, at_least: float) -> _Window | None:
        """Put all windows into one, by rising rates."""
        found = sorted(self._windows(at_least), key=lambda each: float(each.rates[0]))
        if not found:
            return None
        return _Window(
            max(each.best for each in found),
            np.concatenate([each.rates for each in found]),
            np.concatenate([each.profit for each in found]),
            [np.concatenate([each.least[r] for each in found]) for r in range(len(self.form.mixes))],
        )

    def _window(self, first: int, last: int, at_least: float) -> _Window:
        rates, profit = self.rates[first : last + 1], self.profit[first : last + 1]
        least = [own[first : last + 1] for own in self.mix_least]
        rate, value, ends = self._end(first, at_least, True)
        rates, profit = np.concatenate(([rate], rates)), np.concatenate(([value], profit))
        least = [np.concatenate(([end], own)) for end, own in zip(ends, least, strict=True)]
        if last + 1 < len(self.rates) and self.segment[last + 1] == self.segment[last]:
            rate, value, ends = self._end(last + 1, at_least, False)
            rates, profit = np.concatenate((rates, [rate])), np.concatenate((profit, [value]))
            least = [np.concatenate((own, [end])) for end, own in zip(ends, least, strict=True)]
        return _Window(float(self.profit[first : last + 1].max()), rates, profit, least)

    def _narrow(self, window: _Window, fronts: dict[int, RoleFront], at_least: float) -> _Window | None:
        """Narrow a window by what some mixes really cost; None when no rate is left.

        Between two points of the grid tables and these mixes cost what they do at the upper one,
        and the others' least costs are linear, so both ends of each step are looked at.
        """
        if not fronts:
            return window
        if any(not len(front.rate) for front in fronts.values()):
            return None
        low, high = float(window.rates[0]), float(window.rates[-1])
        inner = self.rates[(self.rates > low) & (self.rates < high)]
        grid = np.unique(np.concatenate([front.rate for front in fronts.values()] + [window.rates, inner]))
        grid = grid[(grid >= low) & (grid <= high)]
        left = np.append(low, grid[:-1])
        steps = np.zeros(len(grid))
        for role, (least, _) in zip(self.form.tables, self.table_cost, strict=True):
            steps += least[np.searchsorted(role.rates, grid)]
        own: list[tuple[Floats, Floats]] = []
        for r, (rates, cost) in enumerate(self.envelopes):
            if r in fronts:
                suffix = np.append(_suffix_least(fronts[r].cost)[0], np.inf)
                exact = suffix[np.searchsorted(fronts[r].rate, grid)]
                own.append((exact, exact))
            else:
                own.append((np.interp(left, rates, cost), np.interp(grid, rates, cost)))
        lower = self.weight * left - steps - sum((a for a, _ in own), np.zeros(len(grid)))
        upper = self.weight * grid - steps - sum((b for _, b in own), np.zeros(len(grid)))
        good = np.flatnonzero(np.maximum(lower, upper) >= at_least)
        if not len(good):
            return None
        ends = np.stack((left[good], grid[good]), axis=1).ravel()
        profit = np.stack((lower[good], upper[good]), axis=1).ravel()
        least = [np.stack((a[good], b[good]), axis=1).ravel() for a, b in own]
        return _Window(float(profit.max()), ends, profit, least)

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

    def _combine(
        self, fronts: Sequence[RoleFront], known: float, keep: int, window: _Window
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
        for role, (least, point) in zip(form.tables, self.table_cost, strict=True):
            at = np.searchsorted(role.rates, rates)
            profit = profit - least[at]
            picks.append(point[at])
        for front in fronts:
            suffix, way = _suffix_least(front.cost)
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
            of_config = np.bincount(mix.item_config, weights=counts, minlength=len(mix.config_id))
            # Items of different configs may count the same held GPU; the column itself must not.
            moves += float(counts @ mix.extra) if mix.held is None else mix.held.moves(of_config)
            demand += of_config @ mix.demand
            handle.append(tuple((mix.config_id[c], int(n)) for c, n in enumerate(of_config) if n))
        value = self.weight * rate - moves
        return Found(value, demand, (self.number, tuple(handle)), value - float(demand @ self.prices))

    def every(self, at_least: float, limit: int) -> tuple[list[Found], bool]:
        """List all undominated columns worth `at_least`; False when there are too many."""
        found: list[Found] = []
        complete = True
        union = self._union(at_least) if len(self.rates) else None
        cheapest = union and self._cheapest(union, at_least)
        if cheapest is None:
            return [], True
        for relaxed in self._windows(at_least):
            window = self._narrow(relaxed, dict(enumerate(cheapest)), at_least)
            if window is None:
                continue
            fronts = [self._front(r, window, at_least, prune=False) for r in range(len(self.form.mixes))]
            complete &= all(front.complete for front in (*cheapest, *fronts))
            if all(len(front.rate) for front in fronts):
                columns, whole = _every_combination(self, fronts, at_least, limit)
                found += columns
                complete &= whole
        if not found:
            return [], complete
        kept = undominated(
            np.array([each.demand for each in found]), np.array([each.value for each in found])
        )
        return [found[i] for i in kept], complete


@dataclass(frozen=True)
class _Window:
    """Rates, with the relaxed profit there, each mix's least cost, and the best profit."""

    best: float
    rates: Floats
    profit: Floats
    least: list[Floats]


def _round_up(role: MixRole, cost: Floats, rate: float) -> float:
    """Give the cost of a simple integer mix of at least `rate`: cheapest items first, then one more."""
    order = np.argsort(cost / role.rate, kind="stable")
    left, total, gpus = float(rate), 0.0, role.max_gpus
    best = np.inf
    for j in order:
        each, k = float(role.rate[j]), int(role.gpus[j])
        room = min(int(role.cap[j]), gpus // k if k else int(role.cap[j]))
        up = int(np.ceil(left / each - 1e-12))
        if up <= room:
            best = min(best, total + up * float(cost[j]))
        number = min(room, int(left / each))
        left -= number * each
        total += number * float(cost[j])
        gpus -= number * k
        if left <= 1e-12 or total >= best:
            break
    return min(best, total) if left <= 1e-12 else best


def _suffix_least(cost: Floats) -> tuple[Floats, Ints]:
    """Give the least cost from each point on, and where it is."""
    back = cost[::-1]
    least = np.minimum.accumulate(back)
    first = np.concatenate(([True], back[1:] < least[:-1]))
    where = np.maximum.accumulate(np.where(first, np.arange(len(back)), 0))
    return least[::-1], (len(cost) - 1 - where)[::-1]


def _slope(
    role: MixRole, cost: Floats, rates: Floats, worth: Floats, at: float, at_least: float
) -> tuple[float, float]:
    """Pick the price of rate that leaves the least slack: any is valid, the LP's is best."""
    order = np.argsort(cost / role.rate, kind="stable")
    ends = np.cumsum((role.rate * role.cap)[order])
    here = int(np.searchsorted(ends, at * (1 - 1e-12)))
    best = (0.0, np.inf)
    for j in order[max(0, here - 1) : here + 2]:
        slope = float(cost[j] / role.rate[j])
        base = float((np.minimum(0.0, cost - slope * role.rate) * role.cap).sum())
        slack = float((worth - slope * rates).max()) - base - at_least
        if slack < best[1]:
            best = (slope, slack)
    return best


def _every_combination(
    pricing: _Pricing, fronts: Sequence[RoleFront], at_least: float, limit: int
) -> tuple[list[Found], bool]:
    """Join the ways of all roles, dropping early what cannot reach `at_least`.

    Left out besides: columns with a replica that could go at the same rate (another one is the same
    for less).
    """
    form = pricing.form
    fronts = [_useful(role, front) for role, front in zip(form.mixes, fronts, strict=True)]
    ways = [_table_ways(role, role.demand @ pricing.prices) for role in form.tables]
    ways += [_mix_ways(role, front) for role, front in zip(form.mixes, fronts, strict=True)]
    least = [
        least[np.searchsorted(role.rates, pricing.rates)]
        for role, (least, _) in zip(form.tables, pricing.table_cost, strict=True)
    ]
    least += pricing.mix_least
    ahead = pricing.weight * pricing.rates - sum(least, np.zeros(len(pricing.rates)))
    rate, cost, spare = np.full(1, np.inf), np.zeros(1), np.full(1, -np.inf)
    picks = np.zeros((1, 0), dtype=np.int64)
    complete = True
    for (way_rate, way_cost, way_less, way_at), own in zip(ways, least, strict=True):
        ahead = ahead + own
        highest = np.maximum.accumulate(ahead)
        if len(rate) * len(way_rate) > 100 * limit:
            complete = False
            most = max(1, 100 * limit // len(way_rate))
            rate, cost, spare, picks = rate[:most], cost[:most], spare[:most], picks[:most]
        new_rate = np.minimum(rate[:, None], way_rate[None, :])
        new_cost = cost[:, None] + way_cost[None, :]
        new_spare = np.maximum(spare[:, None], way_less[None, :])
        reach = highest[np.minimum(np.searchsorted(pricing.rates, new_rate * (1 - 1e-12)), len(highest) - 1)]
        keep = np.flatnonzero(((reach - new_cost >= at_least) & (new_spare < new_rate * (1 - 1e-12))).ravel())
        if len(keep) > limit:
            complete = False
            keep = keep[np.argsort(-(reach - new_cost).ravel()[keep], kind="stable")[:limit]]
        parent, own_way = keep // len(way_rate), keep % len(way_rate)
        rate, cost, spare = new_rate.ravel()[keep], new_cost.ravel()[keep], new_spare.ravel()[keep]
        picks = np.concatenate((picks[parent], way_at[own_way][:, None]), axis=1)
    good = np.flatnonzero(pricing.weight * rate - cost >= at_least)
    # Value less price is known, so value is too; of equal demands only the best can matter.
    demand = sum(
        (use[picks[good, i]] for i, use in enumerate(_usages(form, fronts))),
        np.zeros((len(good), len(pricing.prices))),
    )
    value = pricing.weight * rate[good] - cost[good] + demand @ pricing.prices
    first = _best_of_demand(demand, value)
    kept = good[first[undominated(demand[first], value[first])]]
    split = len(form.tables)
    found = [
        pricing.found(
            picks[i, :split].tolist(), [f.counts[w] for f, w in zip(fronts, picks[i, split:], strict=True)]
        )
        for i in kept
    ]
    return found, complete


def _usages(form: Form, fronts: Sequence[RoleFront]) -> list[Floats]:
    tables = [role.number[:, None] * role.demand[role.config] for role in form.tables]
    return tables + [
        f.counts @ role.demand[role.item_config] for role, f in zip(form.mixes, fronts, strict=True)
    ]


def _best_of_demand(demand: Floats, value: Floats) -> Ints:
    """Keep the highest value of each demand."""
    same = np.round(demand @ np.sqrt(np.arange(2, demand.shape[1] + 2) + 0.1) * 1e7)
    order = np.lexsort((-value, same))
    return order[np.concatenate(([True], np.diff(same[order]) > 0))] if len(order) else order


def _useful(role: MixRole, front: RoleFront) -> RoleFront:
    """Drop mixes that take at least as much of everything as another one and give no more rate."""
    if len(front.rate) < 2:
        return front
    usage = np.concatenate(
        (front.counts @ role.demand[role.item_config], front.counts @ role.extra[:, None]), axis=1
    )
    kept = np.sort(undominated(usage, front.rate))
    return RoleFront(front.rate[kept], front.cost[kept], front.counts[kept], front.complete)


Ways = tuple[Floats, Floats, Floats, Ints]
"""Of each way: rate, cost, the highest rate that one replica less still gives, its number."""


def _table_ways(role: TableRole, unit: Floats) -> Ways:
    cost = role.number * unit[role.config] + role.extra
    less = np.zeros(len(cost))
    for config in np.unique(role.config):
        own = np.flatnonzero(role.config == config)
        own = own[np.argsort(role.number[own])]
        less[own[1:]] = role.rate[own[:-1]]
    return role.rate, cost, less, np.arange(len(cost))


def _mix_ways(role: MixRole, front: RoleFront) -> Ways:
    used = np.where(front.counts > 0, role.rate[None, :], np.inf)
    return front.rate, front.cost, front.rate - used.min(axis=1, initial=np.inf), np.arange(len(front.rate))
