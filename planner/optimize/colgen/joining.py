"""Join ways of all roles into configurations, completely: what proofs rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.fronts import MixRole, RoleFront, TableRole, undominated
from libra_plan.planner.optimize.colgen.relaxed import Form, Relaxed

__all__ = ["Joined", "join"]

_COMPARED = 4_000  # configurations, each with all others; past it a list is cut

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


@dataclass(frozen=True)
class Joined:
    """Configurations as numbers: of each, the point of every table and the way of every mix in `fronts`."""

    fronts: list[RoleFront]
    picks: Ints
    complete: bool


def join(relaxed: Relaxed, fronts: Sequence[RoleFront], at_least: float, limit: int) -> Joined:
    """Join the ways of all roles, dropping early what cannot reach `at_least`.

    Left out besides: configurations with a replica that could go at the same rate, and configurations that take
    at least as much as another one and are worth no more. `limit` bounds what is looked at.
    """
    form = relaxed.form
    fronts = [_useful(role, _moved(role, front)) for role, front in zip(form.mixes, fronts, strict=True)]
    ways = [_table_ways(role, role.demand @ relaxed.prices) for role in form.tables]
    ways += [_mix_ways(role, front) for role, front in zip(form.mixes, fronts, strict=True)]
    partial = _Partial.nothing()
    complete = all(front.complete for front in fronts)
    for own, highest in zip(ways, _highest_profits(relaxed), strict=True):
        if len(partial.rate) * len(own[0]) > 100 * limit:
            complete = False
            partial = partial.only(np.arange(max(1, 100 * limit // len(own[0]))))
        partial, whole = _extend(partial, own, relaxed.rates, highest, at_least, limit)
        complete &= whole
    good = np.flatnonzero(relaxed.weight * partial.rate - partial.cost >= at_least)
    picks = partial.picks[good]
    demand = sum(
        (use[picks[:, i]] for i, use in enumerate(_usages(form, fronts))),
        np.zeros((len(good), len(relaxed.prices))),
    )
    # Profit at the prices is known, so value is too; of equal demands only the best can matter.
    value = relaxed.weight * partial.rate[good] - partial.cost[good] + demand @ relaxed.prices
    first = _best_of_demand(demand, value)
    if len(first) > _COMPARED:
        first, complete = first[:_COMPARED], False
    return Joined(fronts, picks[first[undominated(demand[first], value[first])]], complete)


@dataclass(frozen=True)
class _Partial:
    """Configurations so far: rate, cost, the highest rate one replica less still gives, ways picked."""

    rate: Floats
    cost: Floats
    spare: Floats
    picks: Ints

    @classmethod
    def nothing(cls) -> _Partial:
        return cls(np.full(1, np.inf), np.zeros(1), np.full(1, -np.inf), np.zeros((1, 0), dtype=np.int64))

    def only(self, kept: Ints) -> _Partial:
        return _Partial(self.rate[kept], self.cost[kept], self.spare[kept], self.picks[kept])


def _extend(
    partial: _Partial, ways: Ways, rates: Floats, highest: Floats, at_least: float, limit: int
) -> tuple[_Partial, bool]:
    """Add a way of one more role to every partial configuration; False when more than `limit` are left."""
    way_rate, way_cost, way_less, way_at = ways
    rate = np.minimum(partial.rate[:, None], way_rate[None, :]).ravel()
    cost = (partial.cost[:, None] + way_cost[None, :]).ravel()
    spare = np.maximum(partial.spare[:, None], way_less[None, :]).ravel()
    profit = highest[np.minimum(np.searchsorted(rates, rate * (1 - 1e-12)), len(highest) - 1)] - cost
    keep = np.flatnonzero((profit >= at_least) & (spare < rate * (1 - 1e-12)))
    whole = len(keep) <= limit
    if not whole:
        keep = keep[np.argsort(-profit[keep], kind="stable")[:limit]]
    parent, own = keep // max(1, len(way_rate)), keep % max(1, len(way_rate))
    picks = np.concatenate((partial.picks[parent], way_at[own][:, None]), axis=1)
    return _Partial(rate[keep], cost[keep], spare[keep], picks), whole


def _highest_profits(relaxed: Relaxed) -> list[Floats]:
    """Give, after each role is joined, the highest profit up to each rate, later roles at their least."""
    form = relaxed.form
    least: list[Floats] = [
        cost[np.searchsorted(role.rates, relaxed.rates)]
        for role, (cost, _) in zip(form.tables, relaxed.table_cost, strict=True)
    ]
    least += relaxed.mix_least
    ahead = relaxed.profit
    found = []
    for own in least:
        ahead = ahead + own
        found.append(np.maximum.accumulate(ahead))
    return found


def _moved(role: MixRole, front: RoleFront) -> RoleFront:
    """Let each mix cost what it really moves: its items alone may count a held GPU twice."""
    if role.held is None:
        return front
    moves = np.array([role.held.moves(_by_config(role, counts)) for counts in front.counts])
    cost = front.cost - front.counts @ role.extra + moves
    return RoleFront(front.rate, cost, front.counts, front.complete)


def _by_config(role: MixRole, counts: Ints) -> Floats:
    numbers = np.zeros(len(role.config_id))
    np.add.at(numbers, role.item_config, counts)
    return numbers


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
    """Drop mixes that take at least as much of everything as another one and give no more rate.

    What a mix moves must be no less either; it is what its cost has on top of its demand.
    """
    if not 2 <= len(front.rate) <= _COMPARED or role.held is not None:
        return front
    demand = front.counts @ role.demand[role.item_config]
    usage = np.concatenate((demand, front.counts @ role.extra[:, None]), axis=1)
    kept = np.sort(undominated(usage, front.rate))
    return RoleFront(front.rate[kept], front.cost[kept], front.counts[kept], front.complete)
