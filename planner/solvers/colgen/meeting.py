"""Find the best choice by meeting halves, in growing windows below the bound: optimum and proof at once.

Only what has a price is limited here: rows that a unit links (GPUs, and the shares of GPUs opened)
spend from one purse, every other row with a price from its own. Nothing is lost by that but choices
that break a row without a price; those are passed over, and the bound holds all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.planner.solvers.colgen.arrays import Floats
from libra_plan.planner.solvers.colgen.halves import Columns, Half, Pairs, halves, meet
from libra_plan.planner.solvers.colgen.oracle import Found, Oracle
from libra_plan.planner.solvers.colgen.state import State

__all__ = ["meeting"]

_FIRST = 0.06  # of what a task is worth per task: about how far apart the best columns of a task are
_GROWS = 1.5
_LISTED = 3.0  # times the window: how far columns are listed at once
_FREE = 1e-4  # of the highest price of a purse: below it a limit binds nobody
_NOTHING = 1e-12
_LOOKS = 4  # at a task, each wider than the one before
_MET = 1e-7
_PURSES = 6  # every one doubles the cells that a way looks into
_COLUMNS = 20_000  # partial columns of one task looked at
_OF_HARD = 60  # columns listed of a task that has more than can be looked at
_PAIRS = 10_000_000
_FEW_PAIRS = 5_000_000


@dataclass(frozen=True, slots=True)
class _Listed:
    """The columns of every task that lose at most `window` against its best one; None is not running.

    Nothing is worth more than `base`: the bound of the prices, less what even the best ones lose.
    """

    window: float
    base: float
    found: list[list[Found | None]]
    columns: list[Columns]


@dataclass(frozen=True, slots=True)
class _At:
    """Prices, each task's highest reduced value there, and what no plan exceeds if that is `proven`."""

    prices: Floats
    reduced: Floats
    bound: float
    proven: bool
    purses: int = 0


def meeting(state: State, ways: int) -> None:
    """Improve the choice and the bound until the gap is closed, or a window has too many ways to look at.

    Where bound and LP do not meet, the LP's prices are tried too: columns that it uses lose nothing
    there, and a good plan uses most of them.
    """
    if not len(state.oracles) or not np.isfinite(state.priced):
        return
    _meet_at(state, _At(state.prices, state.reduced, state.priced, True), ways)
    value, prices = state.master.solve(state.pool)
    if not state.over and state.priced - value > _MET * abs(value):
        reduced = state.pool.best_reduced(prices, len(state.oracles))
        bound = float(state.resources.limit @ prices) + float(reduced.sum())
        _meet_at(state, _At(prices, reduced, bound, False), ways)


def _meet_at(state: State, at: _At, most: int) -> None:
    purses = _purses(state, at.prices)
    at = replace(at, purses=purses.shape[1])
    limits = state.resources.limit @ purses[:, :-1]
    if not 0 < len(limits) <= _PURSES or (limits <= 0).any():
        return
    tasks = [oracle.on_rows(purses) for oracle in state.oracles]
    window = _FIRST * abs(at.bound) / len(tasks) ** 2
    listed: _Listed | None = None
    hard: set[int] = set()
    while not state.over:
        if listed is None or window > listed.window:
            wide = min(_LISTED * window, max(window, state.bound - state.objective))
            listed = _list(state, at, tasks, wide, hard)
            if listed is None:
                break
            if at.proven:
                state.prove(listed.base)
        room = listed.base - state.objective
        window = min(window, room)
        both = halves(listed.columns, window, limits, most) if room > 0 else None
        if both is None or state.over:
            break
        found = meet(both, limits, window, state.resources.fitting, _PAIRS)
        if found is None:
            break
        if at.proven and not hard:
            state.prove(listed.base - min(found.least, window))
        before = state.objective
        _take(state, listed, both, found)
        if state.objective == before and not state.over:
            found = _beyond(state, both, state.inner.limit @ purses[:, :-1], window, room)
            if found is not None:
                _take(state, listed, both, found)
        if window >= room or (hard and state.objective == before):
            break
        window *= _GROWS


def _purses(state: State, prices: Floats) -> Floats:
    """Give what a unit of each row costs out of each purse; the last purse has no limit."""
    units = state.resources.units
    purse = np.arange(len(prices))
    for unit in units:
        linked = np.flatnonzero(unit)
        purse[np.isin(purse, purse[linked])] = purse[linked[0]]
    numbers = [int(p) for p in np.unique(purse)]
    dear = [p for p in numbers if prices[purse == p].max() > _FREE * prices.max()]
    weights = np.zeros((len(prices), len(dear) + 1))
    for at, row in enumerate(purse):
        weights[at, dear.index(int(row)) if row in dear else -1] = prices[at]
    return weights


def _list(state: State, at: _At, tasks: Sequence[Oracle], window: float, hard: set[int]) -> _Listed | None:
    """List columns, and running nothing, by rising loss; None when it is too late.

    Tasks with too many columns are added to the `hard` ones, of which only some are listed: then a
    window without a plan proves nothing.
    """
    found: list[list[Found | None]] = []
    columns = []
    sure = 0.0
    ones = np.ones(at.purses)
    for number, task in enumerate(tasks):
        own = None if number in hard else _near(state, task, float(at.reduced[number]), ones, window)
        if state.late:
            return None
        best = float(at.reduced[number])
        if own is None:
            hard.add(number)
            own = task.near(ones, best - window, _OF_HARD)
        listed: list[Found | None] = [*own, None]  # None: it does not run
        loss = np.array([best - (one.reduced if one is not None else 0.0) for one in listed])
        least = float(loss.min())
        sure += least if number not in hard else 0.0
        spent = np.zeros((len(loss), at.purses))
        demand = np.zeros((len(loss), len(at.prices)))
        for i, one in enumerate(own):
            spent[i], demand[i] = one.demand, state.oracles[number].demand(one.handle)
            listed[i] = replace(one, demand=demand[i])
        order = np.argsort(loss, kind="stable")
        order = order[loss[order] <= least + window]
        found.append([listed[i] for i in order])
        shifted = np.maximum(loss[order] - least, 0.0)
        columns.append(Columns(number, shifted, spent[order, :-1], demand[order]))
    return _Listed(window, at.bound - sure, found, columns)


def _near(state: State, task: Oracle, best: float, ones: Floats, window: float) -> Sequence[Found] | None:
    """List the columns of one task that lose at most a window more than its best one.

    Prices may bound a task more loosely than any of its columns: then it is the best one that counts.
    """
    wide = window
    for _ in range(_LOOKS):
        own, whole = task.every(ones, best - wide, _COLUMNS)
        if not whole:
            return None
        least = min([best - one.reduced for one in own] + [best])
        if least + window <= wide * (1 + 1e-9) + _NOTHING:
            return own
        wide = least + window if least <= wide else min(4 * wide, best + window)
    return None


def _beyond(
    state: State, both: tuple[Half, Half], limits: Floats, window: float, room: float
) -> Pairs | None:
    """Find the best pairs within the window, or some of those beyond it; None when there are none.

    What was found lacking before is reckoned with here; it is not for proofs.
    """
    wanted = state.limits.gap * abs(state.objective)
    for width in (window, max(4 * window, wanted), max(20 * window, 5 * wanted)):
        found = _some(state, both, limits, min(room, width))
        if found is not None and len(found.loss):
            return found
    return None


def _some(state: State, both: tuple[Half, Half], limits: Floats, width: float) -> Pairs | None:
    """Find pairs among so few of the best ways that there are not too many to look at."""
    ways = max(map(len, both))
    while ways > 1:
        best = both[0].best(ways), both[1].best(ways)
        found = meet(best, limits, width, state.inner.fitting, _FEW_PAIRS)
        if found is not None:
            return found
        ways //= 2
    return None


def _take(state: State, listed: _Listed, both: tuple[Half, Half], found: Pairs) -> None:
    """Take the first pair with which nothing is lacking."""
    inner = lacking = state.inner
    for first, second in zip(found.first, found.second, strict=True):
        ways = both[0].columns_of(int(first)) + both[1].columns_of(int(second))
        columns = [(task, listed.found[task][column]) for task, column in ways]
        chosen = [state.pool.number_of(task, one) for task, one in columns if one is not None]
        before = state.objective
        state.better(chosen)
        if state.late or state.objective > before:
            return
        # Every one alike may lack the same: it is to be reckoned with once.
        state.inner, lacking = inner, state.inner
    state.inner = lacking
