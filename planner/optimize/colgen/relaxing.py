"""The LP over all configurations: prices, configurations, and prices again until value and bound meet."""

from __future__ import annotations

import numpy as np

from libra_plan.planner.optimize.colgen.anew import improve
from libra_plan.planner.optimize.colgen.rounding import round_lp
from libra_plan.planner.optimize.colgen.state import State

__all__ = ["relax"]

_OLD = 0.3  # how much of the best prices so far goes into the next ones; LP duals alone jump about
_NEAR = 1e-4
_SLACK = 0.2  # of what bound and value are apart: how loosely a round's bounds may be proven
_TRIES, _TASKS = 2, 100  # at a better choice, one and another for so many tasks: rounds cost as much
_LITTLE = 0.03  # new configurations per task below which a round that moved no bound brought little


def relax(state: State, gap: float, *, rounded: bool = False) -> None:
    """Price until the LP's value is within `gap` of the bound, or prices bring nothing new.

    `rounded` makes a choice of each LP solution.
    """
    idle, well = 0, True
    while not state.late and idle < 2:
        if state.keeps:
            return
        value, prices = state.master.solve(state.pool)
        if rounded:
            chosen = round_lp(state.inner, state.pool, state.master.fractions(), prices)
            state.better(chosen)
            well = well and improve(state, min(_TRIES, 1 + len(state.oracles) // _TASKS), ask=False)
            if state.over:
                return
        if state.proven - value <= gap * max(abs(value), 1e-9):
            return
        before = state.proven
        # Near the end the LP's own prices are the best: at these its configurations lose nothing at all.
        old = 0.0 if idle or before - value <= _NEAR * abs(value) else _OLD
        slack = _SLACK * (before - value) if np.isfinite(before) else 0.0
        new = state.price(old * state.prices + (1 - old) * prices, max(0.0, slack))
        # Oracles may bound more loosely than they find; then configurations dry up before the bounds meet.
        little = new <= _LITTLE * len(state.oracles) and state.proven >= before - gap * abs(before)
        idle = idle + 1 if little else 0
