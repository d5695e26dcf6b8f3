"""The optimizer: prices from an LP over configurations, configurations from oracles, a choice and its proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from libra_plan.planner.optimize.colgen.arrays import Floats
from libra_plan.planner.optimize.colgen.choosing import choose
from libra_plan.planner.optimize.colgen.oracle import Found, Oracle
from libra_plan.planner.optimize.colgen.relaxing import relax
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.starting import start
from libra_plan.planner.optimize.colgen.state import (
    Answer,
    Caller,
    Chosen,
    Lacking,
    Limits,
    Progress,
    State,
    Worth,
)

__all__ = ["Answer", "Chosen", "Lacking", "Limits", "Progress", "Worth", "optimise", "stays"]


def optimise(
    resources: Resources,
    oracles: Sequence[Oracle],
    limits: Limits = Limits(),  # noqa: B008
    *,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
    prices: Floats | None = None,
    running: Sequence[tuple[int, Found]] = (),
    lacking: Lacking | None = None,
    worth: Worth | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Choose at most one configuration per task, best in all, until the gap, the limit or `stop`.

    Always answers: at the limit with the best choice so far and a bound that holds. `prices` of an
    earlier solve of a similar problem save rounds; `running` (task and configuration of a choice that
    fits) is the first incumbent, and the answer as soon as a bound is near it. `lacking` checks
    what rows cannot say before a choice becomes the incumbent: it gives None, or the further demand
    to reckon with next time. `worth` places a choice and says what it is worth then, where moves
    may come on top of those its configurations know.
    """
    state = State(resources, oracles, limits, Caller(clock, stop, progress, lacking, worth), clock())
    state.keep(running)
    start(state, prices)
    if not state.over:
        relax(state, 1e-8, rounded=True)
        choose(state)
    return state.answer()


def stays(
    resources: Resources,
    oracles: Sequence[Oracle],
    limits: Limits,
    running: Sequence[tuple[int, Found]],
    *,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Answer | None:
    """Answer with the running choice if no choice is worth more than the gaps of `limits` allow.

    No other choice is looked for: None says that one may be worth it.
    """
    state = State(resources, oracles, limits, Caller(clock, stop), clock())
    state.keep(running)
    start(state, None)
    if not state.over:
        relax(state, 1e-8)
    return state.answer() if state.keeps else None
