"""Integer choices: among a few configurations per task, anew for some tasks, then with proof."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libra_plan.planner.optimize.colgen.anew import improve
from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.lp_master import solve_integer
from libra_plan.planner.optimize.colgen.meeting import meeting
from libra_plan.planner.optimize.colgen.pool import Pool
from libra_plan.planner.optimize.colgen.state import State

__all__ = ["choose"]

_FEW_TASKS = 100  # of more, many configurations are tied: HiGHS finds a plan sooner than large halves
_WAYS, _SOME_WAYS = 8_000_000, 1_000_000  # looked at in one window of halves
_TRIES, _TASKS = 8, 8  # in a row, of a few tasks fewer: halves of all of them are soon enumerated
_TOGETHER = 14  # tasks that are chosen anew at a time
_PART_S = 0.5
_MOST_LOOKED_AT = 16  # times `every_limit`
_FEW = 12  # configurations per task when some tasks are chosen anew
_WINDOWS = (0.5, 1.0, 2.0, 4.0)  # of the gap wanted


def choose(state: State) -> None:
    """Close the gap: choose among configurations near the prices, improve parts, then prove.

    What is left of the gap after the first two is closed by a complete search over all configurations
    that a better plan may use, in growing windows below the bound.
    """
    few = len(state.oracles) <= _FEW_TASKS
    well = improve(state, min(_TRIES, 2 + len(state.oracles) // _TASKS), ask=True)
    if not state.over and well:
        meeting(state, _WAYS if few else _SOME_WAYS)
    if not state.over:
        _near_prices(state)
    if not state.over and not (few and well):
        meeting(state, _WAYS)
    many = len(state.oracles) > _TOGETHER  # else every choice is among all tasks already
    if many and not state.over:
        _improve_parts(state, tries=60)
    while not state.over and _prove(state):
        if many:
            _improve_parts(state, tries=8)


def _near_prices(state: State) -> None:
    """Choose among a few configurations per task near the prices: a good plan, no proof.

    The fewer configurations, the sooner HiGHS finds a plan close to the bound, so windows grow.
    """
    wanted = state.limits.gap * state.objective
    window = min(state.bound - state.objective, max(4 * wanted, 0.02 * state.objective / len(state.oracles)))
    for task, oracle in enumerate(state.oracles):
        if state.late:
            return
        at_least = float(state.reduced[task]) - window
        state.pool.add(task, oracle.near(state.prices, at_least, state.limits.near))
    for share in _WINDOWS:
        if not state.over:
            _solve(state, share * wanted, 0.3 * state.limits.gap, max(0.3, 0.25 * state.spent_s))


def _improve_parts(state: State, tries: int) -> None:
    """Choose anew for a few tasks at a time, among more configurations, while the others stay.

    Those that lose most against the prices are likelier to be among them.
    """
    idle, size = 0, min(len(state.oracles), _TOGETHER)
    while not state.over and idle < tries:
        loss = state.losses()
        own = state.reduced.copy()
        own[state.pool.task[list(state.chosen)]] = loss[list(state.chosen)]
        weights = np.maximum(own, 0.0) + 0.05 * (float(own.mean()) + 1e-9)
        free = state.rng.choice(len(own), size, replace=False, p=weights / weights.sum())
        before = state.objective
        _choose_anew(state, free, loss)
        idle = 0 if state.objective > before + 1e-12 else idle + 1


def _choose_anew(state: State, free: Ints, loss: Floats) -> None:
    tasks = set(free.tolist())
    kept = [i for i in state.chosen if int(state.pool.task[i]) not in tasks]
    hint = [i for i in state.chosen if int(state.pool.task[i]) in tasks]
    offered = _cheapest(state.pool, loss, free, _FEW)
    answer = solve_integer(
        state.inner.beside(state.pool.demand[kept].sum(axis=0)),
        state.pool,
        np.union1d(offered, np.asarray(hint, dtype=np.int64)),
        time_limit_s=min(_PART_S, state.left_s),
        gap=1e-9,
        hint=hint,
        stop=state.caller.stop,
        seed=state.limits.seed,
    )
    if answer.chosen is not None:
        state.better([*kept, *answer.chosen])


def _cheapest(pool: Pool, loss: Floats, tasks: Ints, most: int) -> Ints:
    """List the configurations of some tasks that lose least, so many of each."""
    own = np.flatnonzero(np.isin(pool.task, tasks))
    own = own[np.lexsort((loss[own], pool.task[own]))]
    begins = np.flatnonzero(np.diff(pool.task[own], prepend=-1))
    rank = np.arange(len(own)) - np.repeat(begins, np.diff(np.append(begins, len(own))))
    return own[rank < most]


def _prove(state: State) -> bool:
    """Search completely within a window below the bound of the prices; False when that gets nowhere.

    A plan with a configuration that loses more than the window is worth less than that bound by it, and
    by it only once: a window proves nothing on top of what an earlier one has.
    """
    room = state.priced - state.objective
    window = min(room, max(2.5 * state.window, 0.25 * room))
    if not _find_all(state, window):
        state.looked_at *= 4
        return state.looked_at <= _MOST_LOOKED_AT
    state.window = window
    bound = _solve(state, window, 0.3 * state.limits.gap, state.left_s)
    state.proven = min(state.proven, max(bound, state.priced - window))
    state.report()
    return window < room and bound <= state.priced - window + 1e-9 * max(1.0, abs(state.priced))


def _find_all(state: State, window: float) -> bool:
    """Find all configurations that lose at most the window; False when there are too many."""
    whole = True
    for task, oracle in enumerate(state.oracles):
        if state.late or not whole:
            return False
        at_least = float(state.reduced[task]) - window
        found, all_of_them = oracle.every(state.prices, at_least, state.looked_at * state.limits.every_limit)
        state.pool.add(task, found)
        whole &= all_of_them
    return whole


def _solve(state: State, window: float, gap: float, seconds: float) -> float:
    """Let HiGHS choose among the configurations that lose at most the window; give its bound."""
    whole = state.inner is state.resources
    near = state.losses() <= window
    near[list(state.chosen)] = True
    answer = solve_integer(
        state.inner,
        state.pool,
        np.flatnonzero(near),
        time_limit_s=min(seconds, state.left_s),
        gap=gap,
        hint=_hint(state),
        stop=state.caller.stop,
        seed=state.limits.seed,
    )
    if answer.chosen is not None:
        state.better(answer.chosen)
    # With less than there is (something was lacking) the bound is none for all plans.
    return answer.bound + 1e-9 * max(1.0, abs(state.objective)) if whole else np.inf


def _hint(state: State) -> Sequence[int]:
    demand = state.pool.demand[list(state.chosen)].sum(axis=0)
    return state.chosen if state.inner.fits(demand) else ()
