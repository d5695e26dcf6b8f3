"""Cheapest ways for one role to reach a rate, at given prices: what pricing is built from.

A role runs either one of its configs with n replicas (`TableRole`, rate from a table) or a mix of
them (`MixRole`, rates add). Both are priced exactly; the mix by enumeration around the LP of its
knapsack: whatever is dearer than that LP by more than the caller's slack is never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.held import HeldRole

__all__ = ["Dual", "Envelope", "MixRole", "RoleFront", "TableRole", "pareto", "undominated"]

_LEAST = 1e-12
_AT_ONCE = 128  # points compared with all kept ones together
_PARETO_LIMIT = 300_000  # mixes kept of one role; past it the front says it is cut


@dataclass(frozen=True, slots=True)
class Dual:
    """What a unit of rate is worth to a mix, and what a GPU costs it on top where GPUs run out."""

    rate: float
    gpu: float

    def losses(self, role: MixRole, cost: Floats) -> Floats:
        """Give what a replica of each item costs more than its rate is worth."""
        loss = np.asarray(cost + self.gpu * role.gpus - self.rate * role.rate, dtype=np.float64)
        loss[np.abs(loss) <= _LEAST * np.maximum(1.0, np.abs(cost))] = 0.0
        return loss


@dataclass(frozen=True, slots=True)
class Envelope:
    """Corners of the least cost over rates: rate, cost, replicas; of each step the price of a GPU."""

    rate: Floats
    cost: Floats
    taken: Floats
    gpu: Floats

    def replicas(self, rate: float) -> Floats:
        """Give the replicas, in part where need be, that reach a rate at the least cost."""
        at = min(max(int(np.searchsorted(self.rate, rate)), 1), len(self.rate) - 1)
        step = float(self.rate[at] - self.rate[at - 1])
        share = 1.0 if step <= 0 else min(1.0, max(0.0, (rate - float(self.rate[at - 1])) / step))
        taken: Floats = self.taken[at - 1] + share * (self.taken[at] - self.taken[at - 1])
        return np.asarray(taken, dtype=np.float64)

    def dual(self, step: int) -> Dual:
        """Give the prices on one step between corners."""
        run = float(self.rate[step + 1] - self.rate[step])
        rise = float(self.cost[step + 1] - self.cost[step])
        return Dual(rise / run if run > 0 else 0.0, float(self.gpu[step]))


@dataclass(frozen=True, slots=True)
class RoleFront:
    """Ways to run a role, by rising rate: `ways[i]` takes `counts[i]` replicas of each item.

    `complete` is False when the enumeration was cut short: costs are then true, but a cheaper way
    may exist.
    """

    rate: Floats
    cost: Floats
    counts: Ints
    complete: bool = True


@dataclass(frozen=True)
class TableRole:
    """A role that runs one config. Point i: `number[i]` replicas of `config[i]` give `rate[i]`.

    `demand[c]` is the demand of one replica of config c on the resource rows, `extra[i]` what point
    i costs beyond that (moves). `config_id[c]` is handed back in descriptions.
    """

    demand: Floats
    config_id: tuple[int, ...]
    config: Ints
    number: Ints
    rate: Floats
    extra: Floats

    @cached_property
    def order(self) -> Ints:
        """Sort the points by rising rate."""
        return np.argsort(self.rate, kind="stable")

    @cached_property
    def rates(self) -> Floats:
        """List the rates, rising."""
        return self.rate[self.order]

    @cached_property
    def reach(self) -> float:
        """Give the highest rate."""
        return float(self.rates[-1]) if len(self.rates) else 0.0

    def costs(self, unit: Floats) -> Floats:
        """Price every point, by rising rate; `unit[c]` is the price of one replica of config c."""
        return (self.number * unit[self.config] + self.extra)[self.order]

    def cheapest(self, unit: Floats) -> tuple[Floats, Ints]:
        """Give the least cost of reaching each rate in `rates`, and the point that does it."""
        costs = self.costs(unit)[::-1]
        least = np.minimum.accumulate(costs)
        first = np.concatenate(([True], costs[1:] < least[:-1]))
        where = np.maximum.accumulate(np.where(first, np.arange(len(costs)), 0))
        return least[::-1], self.order[::-1][where][::-1]


@dataclass(frozen=True)
class MixRole:
    """A role that may mix items; item j gives `rate[j]` a replica, at most `cap[j]` of them.

    `gpus[j]` counts towards `max_gpus`. Items of one config differ in `extra` (a replica on GPUs it
    holds already costs no move), so `item_config[j]` names the config.
    """

    demand: Floats
    config_id: tuple[int, ...]
    item_config: Ints
    rate: Floats
    cap: Ints
    gpus: Ints
    extra: Floats
    max_gpus: int
    held: HeldRole | None = None

    @cached_property
    def reach(self) -> float:
        """Give the highest rate that GPUs and caps allow, an upper bound by the LP of the knapsack."""
        free = self.gpus == 0
        total = float((self.rate * self.cap)[free].sum())
        left = float(self.max_gpus)
        with np.errstate(divide="ignore"):
            density = np.where(free, -1.0, self.rate / np.maximum(self.gpus, 1))
        for j in np.argsort(-density):
            if free[j] or left <= 0:
                continue
            take = min(float(self.cap[j]), left / float(self.gpus[j]))
            total += float(take * self.rate[j])
            left -= take * float(self.gpus[j])
        return total

    @cached_property
    def mark(self) -> Floats:
        """Give each item a number such that mixes of the same usage have the same sum."""
        usage = np.concatenate(
            (self.demand[self.item_config], self.gpus[:, None], self.extra[:, None]), axis=1
        )
        weights = np.sqrt(np.arange(2, usage.shape[1] + 2, dtype=np.float64) + 0.1)
        if self.held is not None:  # what a mix moves depends on how many replicas of each config it has
            return np.asarray(np.sqrt(np.arange(2, len(self.config_id) + 2) + 0.3)[self.item_config])
        return np.asarray(usage @ weights, dtype=np.float64)

    def costs(self, unit: Floats) -> Floats:
        """Price one replica of each item; `unit[c]` is the price of one replica of config c."""
        return unit[self.item_config] + self.extra

    def envelope(self, cost: Floats) -> Envelope:
        """Give the least cost of every rate when replicas may be split: a bound from below.

        The cheapest rate comes first while there are GPUs; from there on GPUs have a price, at which
        items in another order fill them all: rates rise with that price.
        """
        most = self.cap.astype(np.float64)
        order = np.argsort(cost / self.rate, kind="stable")
        whole = np.zeros((len(order) + 1, len(order)))
        whole[1:, order] = np.tril(np.ones((len(order), len(order)))) * most[order]
        inside = whole[whole @ self.gpus <= self.max_gpus]
        if len(inside) == len(whole):
            return Envelope(whole @ self.rate, whole @ cost, whole, np.zeros(len(order)))
        prices = self._turns(cost)
        ends = np.concatenate(([0.0], (prices[1:] + prices[:-1]) / 2, prices[-1:] * 2 + 1.0))
        ends = ends if len(prices) else np.zeros(1)
        taken = np.concatenate((inside, self._filled(cost, ends)))
        of_turn = np.concatenate((np.zeros(len(inside)), prices))
        return Envelope(taken @ self.rate, taken @ cost, taken, of_turn)

    def _turns(self, cost: Floats) -> Floats:
        """List the prices of a GPU at which two items change places, rising."""
        each, gpus = cost / self.rate, self.gpus / self.rate
        dearer, fewer = each[:, None] - each[None, :], gpus[None, :] - gpus[:, None]
        turning = (dearer > 0) & (fewer > _LEAST)
        return np.unique(dearer[turning] / fewer[turning])

    def _filled(self, cost: Floats, prices: Floats) -> Floats:
        """Fill the GPUs at each price of a GPU, the cheapest rate first; one row a price."""
        order = np.argsort((cost + prices[:, None] * self.gpus) / self.rate, axis=1, kind="stable")
        gpus = (self.gpus * self.cap)[order]
        before = np.cumsum(gpus, axis=1) - gpus
        share = np.clip((self.max_gpus - before) / np.maximum(gpus, 1), 0.0, 1.0)
        share = np.where(gpus == 0, before < self.max_gpus, share)
        taken = np.zeros_like(share)
        np.put_along_axis(taken, order, share * self.cap[order], axis=1)
        return np.asarray(taken, dtype=np.float64)

    def front(
        self, cost: Floats, dual: Dual, slack: float, low: float, high: float, most: float = np.inf
    ) -> RoleFront:
        """Enumerate the Pareto mixes (rate, cost) that may matter.

        Those are mixes whose cost, GPUs and rate at their prices, is within `slack` of the least
        possible, and at most `most`, with a rate of at least `low`; rates beyond `high` are worth no
        more than `high`.
        """
        return _Mixes(self, cost, dual, slack, low, high, most).front(prune=True, limit=_PARETO_LIMIT)

    def every(
        self, cost: Floats, dual: Dual, slack: float, low: float, high: float, most: float, limit: int
    ) -> RoleFront:
        """Enumerate all such mixes, the dominated ones too, up to about `limit` of them."""
        return _Mixes(self, cost, dual, slack, low, high, most).front(prune=False, limit=limit)


class _Mixes:
    """One enumeration: items by falling loss, the one that carries the slope last."""

    def __init__(
        self, role: MixRole, cost: Floats, dual: Dual, slack: float, low: float, high: float, most: float
    ):
        self.role, self.cost = role, cost
        self.most = most + 1e-9 * max(1.0, abs(most))
        self.low, self.high = low, high
        self.slack = slack + 1e-9 * max(1.0, abs(slack))
        self.loss = dual.losses(role, cost)

    def front(self, *, prune: bool, limit: int) -> RoleFront:
        role = self.role
        # An item that loses more than the slack is out; one that gains more is in, up to its cap.
        number_of = np.where(self.loss < -self.slack, role.cap, 0)
        order = np.argsort(-np.abs(self.loss), kind="stable")
        items = order[np.abs(self.loss[order]) <= self.slack].tolist()
        rate, cost = np.full(1, float(number_of @ role.rate)), np.full(1, float(number_of @ self.cost))
        loss, gpus = np.zeros(1), np.full(1, int(number_of @ role.gpus))
        counts = number_of[None, :].astype(np.int64)
        usage, mark = np.zeros(1), role.mark
        # What the items still to come can add at most; lets hopeless rates go early.
        rest = float((role.rate * role.cap)[items].sum())
        complete = True
        for j in items:
            rest -= float(role.rate[j] * role.cap[j])
            first, last = self._numbers(j, loss, rate, rest)
            if last < first:
                return RoleFront(np.zeros(0), np.zeros(0), counts[:0])
            number = np.arange(first, last + 1)
            if len(number) * len(rate) > 4 * limit:
                complete = False
                number = number[: max(1, 4 * limit // len(rate))]
            more = np.abs(self.loss[j]) * (number if self.loss[j] >= 0 else int(role.cap[j]) - number)
            new_loss = (loss[:, None] + more[None, :]).ravel()
            new_rate = (rate[:, None] + number[None, :] * role.rate[j]).ravel()
            new_gpus = (gpus[:, None] + number[None, :] * role.gpus[j]).ravel()
            new_cost = (cost[:, None] + number[None, :] * self.cost[j]).ravel()
            keep = np.flatnonzero(
                (new_loss <= self.slack)
                & (new_cost <= self.most)
                & (new_gpus <= role.max_gpus)
                & (new_rate + rest >= self.low)
            )
            parent = keep // len(number)
            cost = new_cost[keep]
            usage = usage[parent] + number[keep % len(number)] * mark[j]
            counts = counts[parent]
            counts[:, j] = number[keep % len(number)]
            rate, loss, gpus = new_rate[keep], new_loss[keep], new_gpus[keep]
            kept = np.arange(len(rate))
            if len(rate) > 1:
                kept = self._undominated(rate, cost, gpus) if prune else _best_of_usage(rate, usage, loss)
            if len(kept) > limit:
                complete = False
                kept = kept[np.argsort(loss[kept], kind="stable")[:limit]]
            rate, cost, loss, gpus, counts = rate[kept], cost[kept], loss[kept], gpus[kept], counts[kept]
            usage = usage[kept]
        order = np.argsort(rate, kind="stable")
        order = order[rate[order] >= self.low * (1 - 1e-12)]
        return RoleFront(rate[order], cost[order], counts[order], complete)

    def _numbers(self, j: int, loss: Floats, rate: Floats, rest: float) -> tuple[int, int]:
        cap = int(self.role.cap[j])
        if self.role.gpus[j]:
            cap = min(cap, self.role.max_gpus // int(self.role.gpus[j]))
        if not len(rate):
            return 1, 0
        room = self.slack - float(loss.min())
        first, last = 0, cap
        if self.loss[j] > 0:
            last = min(cap, int(room / self.loss[j]))
        elif self.loss[j] < 0:
            first = max(0, int(np.ceil(int(self.role.cap[j]) - room / -self.loss[j])))
        step = float(self.role.rate[j])
        first = max(first, int(np.ceil((self.low - rest - float(rate.max())) / step - 1e-9)))
        last = min(last, max(0, int(np.ceil((self.high - float(rate.min())) / step - 1e-9))))
        return first, last

    def _undominated(self, rate: Floats, cost: Floats, gpus: Ints) -> Ints:
        """Keep the Pareto set of (rate up to `high`, cost), by number of GPUs while those may bind."""
        capped = np.minimum(rate, self.high)
        if int(gpus.max()) + self._gpus_to_come(rate) <= self.role.max_gpus:
            return pareto(capped, cost)
        order = np.lexsort((-capped, cost, gpus))
        group = np.cumsum(np.diff(gpus[order], prepend=gpus[order][:1]) > 0)
        lifted = capped[order] + group * (float(capped.max()) + 1.0)
        best = np.maximum.accumulate(lifted)
        return order[np.concatenate(([True], lifted[1:] > best[:-1]))]

    def _gpus_to_come(self, rate: Floats) -> float:
        """Bound the GPUs that reach `high` from the lowest rate without a replica too many."""
        role = self.role
        short = max(0.0, self.high - float(rate.min())) + float(role.rate.max())
        return float((role.gpus / role.rate).max()) * short


def _best_of_usage(rate: Floats, usage: Floats, loss: Floats) -> Ints:
    """Keep the highest rate of each usage; of equals the one that loses least."""
    same = np.round(usage * 1e7)
    order = np.lexsort((loss, -np.round(rate, 12), same))
    return order[np.concatenate(([True], np.diff(same[order]) > 0))]


def pareto(gain: Floats, cost: Floats) -> Ints:
    """Give the numbers of the points no other one beats in both, by rising cost and gain."""
    order = np.lexsort((-gain, cost))
    best = np.maximum.accumulate(gain[order])
    return order[np.concatenate(([True], gain[order][1:] > best[:-1]))]


def undominated(usage: Floats, gain: Floats) -> Ints:
    """Give the numbers of the points that no other one matches in gain for at most the same usage."""
    if not len(gain):
        return np.zeros(0, dtype=np.int64)
    usage = usage[:, np.ptp(usage, axis=0) > 0]  # what all take alike decides nothing
    order = np.lexsort((-gain, usage.sum(axis=1)))
    kept = order[:0]
    for begin in range(0, len(order), _AT_ONCE):
        some = order[begin : begin + _AT_ONCE]
        some = some[~_matched(usage[kept], gain[kept], usage[some], gain[some]).any(axis=0)]
        # What matches an earlier point that is matched itself matches the later one, too.
        beaten = np.triu(_matched(usage[some], gain[some], usage[some], gain[some]), 1)
        kept = np.concatenate((kept, some[~beaten.any(axis=0)]))
    return kept


def _matched(usage: Floats, gain: Floats, other: Floats, of_other: Floats) -> NDArray[np.bool_]:
    """Tell which points match which others: as much gain for at most the same usage."""
    found = gain[:, None] >= of_other - 1e-12
    for row in range(usage.shape[1]):
        found &= usage[:, row, None] <= other[:, row] + 1e-12
    return found
