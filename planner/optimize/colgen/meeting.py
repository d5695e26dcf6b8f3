"""Find the best choice by meeting halves, in growing windows below the bound: optimum and proof at once.

Only what has a price is limited here: rows that a unit links (GPUs, and the shares of GPUs opened)
spend from one purse, every other row with a price from its own. Nothing is lost by that but choices
that break a row without a price; those are passed over, and the bound holds all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats
from libra_plan.planner.optimize.colgen.halves import Configurations, Half, Pairs, halves, meet, meet_some
from libra_plan.planner.optimize.colgen.oracle import Found, Oracle
from libra_plan.planner.optimize.colgen.purses import purses
from libra_plan.planner.optimize.colgen.state import State

__all__ = ["meeting"]

_FIRST = 0.06  # of what a task is worth per task: about how far apart the best configurations of a task are
_GROWS = 1.5
_LISTED, _AGAIN = 3.0, 4.0  # times the window: how far configurations are listed, at first and later
_CLOSED = 0.9  # of the gap wanted: what a window leaves that proves it
_NOTHING = 1e-12
_LOOKS = 4  # at a task, each wider than the one before
_MET = 1e-7
_PURSES = 6  # every one doubles the cells that a way looks into
_COLUMNS = 20_000  # partial configurations of one task looked at
_OF_HARD = 60  # configurations listed of a task that has more than can be looked at
_PAIRS = 10_000_000
_WIDER = (1.0, 1.25, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # times the window: what pairs beyond it may lose
_FEW_PAIRS = 5_000_000


@dataclass(frozen=True, slots=True)
class _Listed:
    """The configurations of every task that lose at most `window` against its best one; None is not running.

    Nothing is worth more than `base`: the bound of the prices, less what even the best ones lose.
    """

    window: float
    base: float
    found: list[list[Found | None]]
    configurations: list[Configurations]


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

    Where bound and LP do not meet, the LP's prices are tried too: configurations that it uses lose nothing
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
    spends = purses(state.resources, at.prices)
    at = replace(at, purses=spends.shape[1])
    limits = state.resources.limit @ spends[:, :-1]
    if not 0 < len(limits) <= _PURSES or (limits <= 0).any():
        return
    tasks = [oracle.on_rows(spends) for oracle in state.oracles]
    window = _FIRST * abs(at.bound) / len(tasks) ** 2
    listed: _Listed | None = None
    hard: set[int] = set()
    while not state.over:
        if listed is None or window > listed.window:
            wide = min(
                (_LISTED if listed is None else _AGAIN) * window, max(window, _needed(state, state.bound))
            )
            listed = _list(state, at, tasks, wide, hard)
            if listed is None:
                break
            if at.proven:
                state.prove(listed.base)
        room = listed.base - state.objective
        window = min(window, room)
        both = halves(listed.configurations, window, limits, most, _late(state)) if room > 0 else None
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
            _beyond(state, listed, both, spends[:, :-1], window, room)
        if window >= room or (hard and state.objective == before):
            break
        needed = _needed(state, listed.base)
        window = needed if window < needed < _GROWS * window else _GROWS * window


def _late(state: State) -> Callable[[], bool]:
    return lambda: state.late


def _needed(state: State, bound: float) -> float:
    """Give the window that proves the gap if nothing better than the choice is in it."""
    return bound - (1 + _CLOSED * state.limits.gap) * state.objective


def _list(state: State, at: _At, tasks: Sequence[Oracle], window: float, hard: set[int]) -> _Listed | None:
    """List configurations, and running nothing, by rising loss; None when it is too late.

    Tasks with too many configurations are added to the `hard` ones, of which only some are listed: then a
    window without a plan proves nothing.
    """
    found: list[list[Found | None]] = []
    configurations = []
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
        configurations.append(Configurations(number, shifted, spent[order, :-1], demand[order]))
    return _Listed(window, at.bound - sure, found, configurations)


def _near(state: State, task: Oracle, best: float, ones: Floats, window: float) -> Sequence[Found] | None:
    """List the configurations of one task that lose at most a window more than its best one.

    Prices may bound a task more loosely than any of its configurations: then it is the best one that counts.
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
    state: State, listed: _Listed, both: tuple[Half, Half], spends: Floats, window: float, room: float
) -> None:
    """Take the best pairs within the window, or some of those beyond it.

    What was found lacking before is reckoned with here; it is not for proofs.
    """
    before = state.objective
    for wider in _WIDER:
        width = min(room, wider * window)
        limits = state.inner.limit @ spends
        found = meet(both, limits, width, state.inner.fitting, _FEW_PAIRS)
        crowded = found is None
        if found is None:
            found = meet_some(both, limits, width, state.inner.fitting, _FEW_PAIRS)
        _take(state, listed, both, found)
        if crowded or width >= room or state.objective > before or state.over:
            return


def _take(state: State, listed: _Listed, both: tuple[Half, Half], found: Pairs) -> None:
    """Take the first pair with which nothing is lacking."""
    before = state.objective
    for first, second in zip(found.first, found.second, strict=True):
        ways = both[0].configurations_of(int(first)) + both[1].configurations_of(int(second))
        configurations = [(task, listed.found[task][configuration]) for task, configuration in ways]
        chosen = [state.pool.number_of(task, one) for task, one in configurations if one is not None]
        if state.inner.fits(state.pool.demand[chosen].sum(axis=0)):  # else it lacks what one before it lacked
            state.better(chosen)
        if state.late or state.objective > before:
            return
