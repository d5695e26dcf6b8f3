"""Price one form of a task: the best rate, the ways of its roles to reach it, and configurations near it.

For a rate λ every role takes its cheapest way to reach λ, so the best configuration is the best λ. Mixes
make λ continuous: a bound with the LP of each mix comes first, then only the mixes that could beat
the best configuration known are enumerated (fronts.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.fronts import (
    Dual,
    Envelope,
    MixRole,
    RoleFront,
    undominated,
)
from libra_plan.planner.optimize.colgen.joining import Joined, join
from libra_plan.planner.optimize.colgen.oracle import Found
from libra_plan.planner.optimize.colgen.relaxed import Form, Relaxed, Window, suffix_least

__all__ = ["TINY", "Pricing"]

TINY = 1e-12
_GOOD = 0.98  # of the bound: from here on a guess hardly beats what is known
_MOST_BEYOND = 2_000  # partial configurations looked at where moves are counted anew
_FIRST_LOOK = 0.3  # of a replica's price: how far below the bound pricing looks first


class Pricing:
    """One form at one set of prices."""

    def __init__(self, weight: float, form: Form, number: int, prices: Floats) -> None:
        self.weight, self.form, self.number, self.prices = weight, form, number, prices
        self.relaxed = Relaxed(weight, form, prices)

    def best(self, known: float, keep: int) -> tuple[float, list[Found]]:
        """Find the best configuration if it beats `known`, and up to `keep` near it; bound them all."""
        if not len(self.relaxed.rates):
            return 0.0, []
        upper = float(self.relaxed.profit.max())
        if upper <= known + TINY:
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
            best, configurations = self._combine([], known, keep, window)
            return max(known, best), configurations
        best, configurations = self._deepen(last, fronts, window, floor, known, keep)
        complete = all(front.complete for front in fronts.values())  # the last one, if it was cut
        return (max(known, best) if complete else max(known, window.best)), configurations

    def beyond(self, known: float, upper: float) -> tuple[float, list[Found]]:
        """Find the best configuration above `known` where items may count held GPUs twice, and bound it.

        Such configurations cost more than their items do, so those just below the cheapest are looked at, all.
        """
        configurations, complete = self.every(known + TINY, _MOST_BEYOND)
        best = max((each.reduced for each in configurations), default=known)
        return (max(known, best) if complete else upper), configurations

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
            configurations: list[Found] = []
            if near is not None:
                fronts[r] = self._front(r, near, at_least, limit=None)
                seen = self.relaxed.narrow(near, fronts, at_least)
                if seen is not None:
                    ways = [fronts[i] for i in range(len(self.form.mixes))]
                    best, configurations = self._combine(ways, known, keep, near)
                if best >= at_least or not fronts[r].complete:
                    return best, configurations
                del fronts[r]
            if at_least <= floor:
                return best, configurations
            step *= 4

    def _by_size(self) -> list[int]:
        """List the mixes, the smallest first: what they really cost leaves the others less to look at."""
        return sorted(range(len(self.form.mixes)), key=lambda r: self.form.mixes[r].max_gpus)

    def near(self, at_least: float, keep: int) -> list[Found]:
        """List configurations worth `at_least`: at each rate that some role gives exactly, the best one."""
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
        """Make configurations of simple integer mixes at two rates, the best relaxed one and half of it."""
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
        """List each mix's Pareto ways for the rates of a window; None when no configuration is left there."""
        fronts: dict[int, RoleFront] = {}
        left: Window | None = window
        for r in self._by_size():
            if left is None:
                return None
            fronts[r] = self._front(r, left, at_least, limit=None)
            left = self.relaxed.narrow(left, fronts, at_least)
        return None if left is None else [fronts[r] for r in range(len(self.form.mixes))]

    def _front(self, r: int, window: Window, at_least: float, *, limit: int | None) -> RoleFront:
        """List one mix's ways that a configuration worth `at_least` may use at the rates of a window.

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
            if key in seen or (profit[at] <= known + TINY and not seen):
                continue
            seen.add(key)
            points = key[: len(self.form.tables)]
            mixes = [
                front.counts[way] for front, way in zip(fronts, key[len(self.form.tables) :], strict=True)
            ]
            yield self.found(points, mixes)

    def found(self, points: Sequence[int], mixes: Sequence[Ints]) -> Found:
        """Build the configuration from a point per table and counts per mix: its true rate and cost."""
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
            # Items of different configs may count the same held GPU; the configuration itself must not.
            moves += float(counts @ mix.extra) if mix.held is None else mix.held.moves(of_config)
            demand += of_config @ mix.demand
            handle.append(tuple((mix.config_id[c], int(n)) for c, n in enumerate(of_config) if n))
        value = self.weight * rate - moves
        return Found(value, demand, (self.number, tuple(handle)), value - float(demand @ self.prices))

    def every(self, at_least: float, limit: int) -> tuple[list[Found], bool]:
        """List all undominated configurations worth `at_least`; False when there are too many."""
        union = self.relaxed.union(at_least) if len(self.relaxed.rates) else None
        cheapest = None if union is None else self._cheapest(union, at_least)
        if cheapest is None:
            return [], True
        found: list[_Many] = []
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
            found.append(_Many(self, joined))
        if not found:
            return [], complete
        value = np.concatenate([each.value for each in found])
        demand = np.concatenate([each.demand for each in found])
        kept = undominated(demand, value) if complete else np.arange(len(value))
        owner = np.repeat(np.arange(len(found)), [len(each.value) for each in found])
        begins = np.searchsorted(owner, np.arange(len(found)))
        return [found[owner[i]].configuration(int(i - begins[owner[i]])) for i in kept], complete


class _Many:
    """Configurations of one form as arrays; only those that are wanted are described."""

    def __init__(self, pricing: Pricing, joined: Joined) -> None:
        self.pricing, self.joined, form = pricing, joined, pricing.form
        tables, picks = len(form.tables), joined.picks
        rate, moves = np.full(len(picks), np.inf), np.zeros(len(picks))
        self.demand = np.zeros((len(picks), len(pricing.prices)))
        for table, point in zip(form.tables, picks[:, :tables].T, strict=True):
            rate = np.minimum(rate, table.rate[point])
            moves += table.extra[point]
            self.demand += table.number[point, None] * table.demand[table.config[point]]
        self.of_config: list[Floats] = []
        for mix, front, way in zip(form.mixes, joined.fronts, picks[:, tables:].T, strict=True):
            of_config = front.counts @ (mix.item_config[:, None] == np.arange(len(mix.config_id)))
            used = np.unique(way)
            own = front.counts @ mix.extra
            if mix.held is not None:
                own[used] = [mix.held.moves(of_config[w].astype(np.float64)) for w in used]
            rate = np.minimum(rate, (front.counts @ mix.rate)[way])
            moves += own[way]
            self.demand += (of_config @ mix.demand)[way]
            self.of_config.append(of_config)
        self.value: Floats = pricing.weight * rate - moves

    def configuration(self, at: int) -> Found:
        """Describe one configuration."""
        form, pick = self.pricing.form, self.joined.picks[at]
        handle: list[tuple[tuple[int, int], ...]] = [
            ((table.config_id[int(table.config[point])], int(table.number[point])),)
            for table, point in zip(form.tables, pick, strict=False)
        ]
        for mix, of_config, way in zip(form.mixes, self.of_config, pick[len(form.tables) :], strict=True):
            numbers = of_config[way].tolist()
            handle.append(tuple((mix.config_id[c], n) for c, n in enumerate(numbers) if n))
        value = float(self.value[at])
        reduced = value - float(self.demand[at] @ self.pricing.prices)
        return Found(value, self.demand[at], (self.pricing.number, tuple(handle)), reduced)


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
