"""Choose anew for some tasks at a time while the others stay: halves that meet, over configurations known.

At the LP's prices a plan's worth is the LP's value, less what its configurations lose, less the price of
what it leaves unused. A dozen tasks have so many ways to run that lose next to nothing that some
leave next to nothing unused, so a step or two bring a rounded solution near to the LP's value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.halves import (
    Configurations,
    Fits,
    Half,
    Pairs,
    halves,
    meet,
    meet_some,
    window_of,
)
from libra_plan.planner.optimize.colgen.purses import purses
from libra_plan.planner.optimize.colgen.state import State

__all__ = ["improve"]

_TOGETHER, _LEAST_TOGETHER = 14, 8  # tasks at first, and at least
_PURSES = 4  # the dearest ones: every one doubles the cells that a way looks into
_WAYS = 2_000  # of a half, at first
_UNLIKE_WAYS = 10_000  # of a half, once those that spend alike are merged
_LOOKED_AT = 600_000
_WIDER = 1.5  # times the window, while there are fewer
_PAIRS = 2_000_000
_NARROW, _WIDE = 0.25, 256.0  # times the window: what pairs may lose, at first and at last
_LACKING = 4  # times that pairs are looked for anew, with what was lacking
_TRIED = 6  # pairs of one step for which something may be lacking
_ASKED = 64  # tasks at a time that are asked for configurations
_LISTED = 24  # configurations asked of a task
_UNLIKE = 0.02  # of what a task is worth: how much the configurations asked of it lose at most
_ENOUGH = 0.3  # of the gap wanted
_WELL = 0.25  # of what is lacking: what tries should bring
_BARREN, _FAR = 3, 10.0  # tries that brought nothing, so many gaps away: something else is needed


def improve(state: State, tries: int, *, ask: bool, known: bool = False) -> bool:
    """Improve the choice until so many tries bring nothing; with `ask`, so many in a row.

    Tasks that lose most are likelier to be chosen anew. With `ask` these are asked for configurations near
    the prices. Without it prices are still on their way: nothing is done where those lack more.
    The prices are the LP's, or with `known` those of the bound. Tells whether it went well: where rows
    without a price bind, what is looked up seldom fits.
    """
    if len(state.oracles) < 2 or not state.chosen:
        return True
    value, prices = state.master.solve(state.pool)
    prices = state.prices if known else prices
    steps = _Steps(state, prices, purses(state.resources, prices)[:, :-1][:, :_PURSES])
    enough = max(_ENOUGH * state.limits.gap * abs(value), 0.0 if ask else 2 * (state.proven - value))
    size, idle, asked = len(state.oracles), 0, set[int]()
    lacked = value - state.objective
    while idle < tries and not state.over:
        if value - state.objective <= enough:
            return True
        if idle >= _BARREN and value - state.objective > _FAR * state.limits.gap * abs(value):
            return False
        best, loss = steps.losses()
        free = _drawn(state, best, loss, size)
        if ask and size <= _ASKED:
            _ask(state, prices, best, [t for t in free.tolist() if t not in asked])
            asked.update(free.tolist())
            best, loss = steps.losses()
        before = state.objective
        fewer = steps.take(free, best, loss, _reserve(state, idle))
        better = state.objective > before + 1e-12
        idle = 0 if better and ask else idle + 1
        if not better:
            size = max(_LEAST_TOGETHER, min(_TOGETHER, size * 4 // 5)) if fewer else size * 3 // 2
        size = min(size, len(state.oracles)) if not better or size <= _ASKED else _TOGETHER
    return value - state.objective <= (1 - _WELL) * lacked


def _reserve(state: State, idle: int) -> Floats:
    """Leave room for one unit of some kind where placing may cost on top: more may stay in its place."""
    units = state.resources.units
    kind = idle % (len(units) + 1) - 1 if state.caller.worth is not None else -1
    return np.maximum(units[kind], 0.0) if kind >= 0 else np.zeros(len(state.resources.names))


def _drawn(state: State, best: Floats, loss: Floats, size: int) -> Ints:
    """Draw tasks to choose anew, by what they lose now."""
    own = best.copy()
    chosen = np.asarray(state.chosen, dtype=np.int64)
    own[state.pool.task[chosen]] = loss[chosen]
    weights = np.maximum(own, 0.0) + 0.05 * (float(own.mean()) + 1e-9)
    return np.sort(state.rng.choice(len(own), size, replace=False, p=weights / weights.sum()))


def _ask(state: State, prices: Floats, best: Floats, tasks: list[int]) -> None:
    """Ask tasks for configurations near the prices."""
    window = _UNLIKE * state.objective / len(state.oracles)
    for task in tasks:
        if state.late:
            return
        near = state.oracles[task].near(prices, float(best[task]) - window, _LISTED)
        state.pool.add(task, near)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps at some prices; `purses`: what a unit of each row costs out of each purse."""

    state: State
    prices: Floats
    purses: Floats

    def losses(self) -> tuple[Floats, Floats]:
        """Give each task's highest reduced value, and what each configuration loses against it."""
        pool = self.state.pool
        best = pool.best_reduced(self.prices, len(self.state.oracles))
        return best, best[pool.task] - (pool.value - pool.demand @ self.prices)

    def take(self, free: Ints, best: Floats, loss: Floats, reserve: Floats) -> bool:
        """Choose anew for some tasks, beside a reserve; True if fewer of them might bring more."""
        state, pool = self.state, self.state.pool
        chosen = np.asarray(state.chosen, dtype=np.int64)
        out = np.isin(pool.task[chosen], free)
        kept, now = chosen[~out], chosen[out]
        taken = pool.demand[kept].sum(axis=0) + reserve
        limits = state.resources.beside(taken).limit @ self.purses
        if not len(limits) or (limits <= 0).any():
            return False
        unused = limits - pool.demand[now].sum(axis=0) @ self.purses
        waits = np.setdiff1d(free, pool.task[now])
        room = float(loss[now].sum() + best[waits].sum() + unused.sum())
        # Placing may cost on top: then configurations that are worth less may be worth more once placed.
        room += max(0.0, float(pool.value[chosen].sum()) - state.objective)
        if room <= 0:
            return False
        numbers, listed = self._list(free, best, loss, room)
        window, both = _halves(listed, room, limits)
        if both is None:
            return True
        before = state.objective
        for _ in range(_LACKING):
            inner = state.inner
            found = _met(both, limits, window, room, inner.beside(taken).fitting)
            if not len(found.loss):
                break
            self._try(kept, numbers, both, found)
            if state.objective > before or state.inner is inner or state.late:
                break
        return window < room

    def _list(
        self, free: Ints, best: Floats, loss: Floats, room: float
    ) -> tuple[dict[int, Ints], list[Configurations]]:
        """List the known configurations of tasks, and running nothing, by rising loss."""
        pool = self.state.pool
        order = np.flatnonzero(np.isin(pool.task, free) & (loss <= room))
        order = order[np.lexsort((loss[order], pool.task[order]))]
        ends = np.searchsorted(pool.task[order], free, side="right")
        numbers, listed = {}, []
        for task, own in zip(free.tolist(), np.split(order, ends[:-1]), strict=True):
            at = int(np.searchsorted(loss[own], best[task]))
            numbers[task] = np.insert(own, at, -1)  # runs nothing
            lost = np.insert(loss[own], at, best[task])
            demand = np.insert(pool.demand[own], at, 0.0, axis=0)
            listed.append(Configurations(task, np.maximum(lost, 0.0), demand @ self.purses, demand))
        return numbers, listed

    def _try(self, kept: Ints, numbers: dict[int, Ints], both: tuple[Half, Half], found: Pairs) -> None:
        """Take the first pair with which nothing is lacking."""
        state = self.state
        tried, before = 0, state.objective
        for first, second in zip(found.first, found.second, strict=True):
            ways = both[0].configurations_of(int(first)) + both[1].configurations_of(int(second))
            own = np.array([numbers[task][configuration] for task, configuration in ways], dtype=np.int64)
            choice = np.concatenate((kept, own[own >= 0]))
            if not state.inner.fits(state.pool.demand[choice].sum(axis=0)):
                continue  # it lacks what one before it lacked
            state.better(choice.tolist())
            tried += 1
            if state.objective > before or tried == _TRIED or state.late:
                return


def _halves(
    listed: list[Configurations], room: float, limits: Floats
) -> tuple[float, tuple[Half, Half] | None]:
    """Enumerate both halves in a window in which they have some thousand ways that spend unlike."""
    window = window_of(listed, room, _WAYS)
    both = halves(listed, window, limits, _LOOKED_AT)
    while both is not None and window < room and max(map(len, both)) < _UNLIKE_WAYS:
        wider = min(room, _WIDER * window)
        more = halves(listed, wider, limits, _LOOKED_AT)
        if more is None:
            break
        window, both = wider, more
    return window, both


def _met(both: tuple[Half, Half], limits: Floats, window: float, room: float, fits: Fits) -> Pairs:
    """Find the best pairs, looking for those that lose little first; beyond the window only some are seen."""
    width, last = min(room, _NARROW * window), min(room, _WIDE * window)
    while True:
        found = meet(both, limits, width, fits, _PAIRS)
        if found is None:
            return meet_some(both, limits, width, fits, _PAIRS)
        if len(found.loss) or width >= last:
            return found
        width = min(last, 2 * width)
