"""Everything one look works with, worked out once: what is known, what changed, what may change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from libra_plan.planner.controller import guards
from libra_plan.planner.controller.choose import Freedom, kept_choice
from libra_plan.planner.controller.configuration_values import Floats, Market, Memo, charged, market_of
from libra_plan.planner.controller.estimators import Doubts, corrected, doubts_of, observe
from libra_plan.planner.controller.events import happened, quota_key, still_lost, without
from libra_plan.planner.controller.horizon import horizon_s
from libra_plan.planner.controller.policy import ReplanPolicy
from libra_plan.planner.controller.record import digest_of, to_bytes
from libra_plan.planner.controller.state import Clock, LoopState, TaskClock
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import Event, EventKind, Moment, Observations

__all__ = ["Desk", "LookInputs", "lay_out", "ticked"]


@dataclass(frozen=True)
class LookInputs:
    """All a look decides from, the state apart: the same inputs give the same decision, bit for bit.

    `problem` is priced for the middle of the expected stay, its `restart_s` the 90th percentile of what
    moves cost; `today` is the same priced for now, which observations are compared with (None: `problem`
    is that, too); `paused` names tasks that their user wants paused, `rigid` those whose checkpoints load
    on as many ranks only. `window` is None where there is no telemetry.
    """

    problem: Problem
    policy: ReplanPolicy
    now: Moment
    window: Observations | None = None
    paused: frozenset[str] = frozenset()
    rigid: frozenset[str] = frozenset()
    today: Problem | None = None


@dataclass(frozen=True)
class Desk:
    """What a look has found out before it weighs anything.

    `state` has the clocks and averages of this look; `values` and `doubts` are per task of the market;
    `held` says why tasks stay as they are.
    """

    inputs: LookInputs
    window: Observations | None
    telemetry: str | None
    state: LoopState
    problem: Problem
    events: tuple[Event, ...]
    market: Market
    values: tuple[Floats, ...]
    doubts: tuple[Floats, ...]
    seen: Doubts
    held: Mapping[int, guards.Held]
    banned: Mapping[int, frozenset[int]]
    notes: tuple[str, ...]

    @property
    def running(self) -> float:
        """Give what runs, valued as it is."""
        return sum(float(self.values[t][c]) for t, c in kept_choice(self.market).items())

    def freedom(self, more: frozenset[int] = frozenset()) -> Freedom:
        """Give what may change: `more` tasks are frozen beside those that are held back."""
        return Freedom(frozenset(self.held) | more, self.banned)


def ticked(clock: Clock, now: Moment, tolerance_s: float) -> tuple[Clock, str | None]:
    """Move the loop's clock on; a sentence when the wall clock jumped (A078).

    Within one boot the boot's clock counts; across boots the wall clock must do, and only forwards.
    """
    last = clock.last
    if last is None:
        return replace(clock, last=now), None
    wall_s = now.wall_s - last.wall_s
    if now.boot == last.boot:
        boot_s = max(0.0, now.boot_s - last.boot_s)
        off = wall_s - boot_s
        said = (
            f"the wall clock went {off:+.0f} s off within {boot_s:.0f} s" if abs(off) > tolerance_s else None
        )
        return Clock(clock.loop_s + boot_s, now), said
    if wall_s < 0:
        return replace(clock, last=now), f"the host restarted and its clock went back {-wall_s:.0f} s"
    return Clock(clock.loop_s + wall_s, now), None


def lay_out(inputs: LookInputs, state: LoopState, clock: Clock, memo: Memo) -> Desk:
    """Take in observations and events, correct the problem, and say what may change."""
    policy = inputs.policy
    state = replace(state, looks=state.looks + 1, clock=clock)
    known = None if inputs.window is None else _of_what_runs(inputs.window, state, inputs.now)
    window, telemetry = _fresh(replace(inputs, window=known))
    told = () if known is None else known.events
    lost = still_lost(inputs.problem, state, told)
    problem = without(inputs.problem, lost)
    events = happened(problem, replace(state, looks=state.looks - 1), told, inputs.paused)
    tracked = state.tracked
    if window is not None:
        tracked = observe(tracked, inputs.today or inputs.problem, window.seen, policy.trust)
    problem = corrected(problem, tracked)
    state = replace(
        state, lost=tuple(lost.items()), tracked=tracked, clocks=_clocks(problem, state, window, policy)
    )
    problem, ran_out = guards.with_oom(problem, state, known, policy)
    state = replace(state, clocks=tuple(ran_out.get(each.task, each) for each in state.clocks))
    problem = replace(problem, horizon_s=_rounded(horizon_s(state, _running(problem), policy.stay)))
    key = digest_of(to_bytes(problem))
    market = memo.known.get(key) or memo.keep(key, market_of(problem, memo.configurations))
    seen = doubts_of(tracked)
    pairs = [charged(task, problem, policy, seen) for task in market.tasks]
    held, banned, notes = _limits(inputs, state, window, market)
    return Desk(
        inputs,
        window,
        telemetry,
        _remember(state, problem, inputs.paused),
        problem,
        events,
        market,
        tuple(pair[0] for pair in pairs),
        tuple(pair[1] for pair in pairs),
        seen,
        held,
        banned,
        notes,
    )


def _fresh(inputs: LookInputs) -> tuple[Observations | None, str | None]:
    if inputs.window is None:
        return None, "there is no telemetry"
    age_s = inputs.now.wall_s - inputs.window.until_s
    if age_s > inputs.policy.safety.telemetry_max_age_s:
        return None, f"the newest telemetry is {age_s:.0f} s old"
    if not age_s >= -inputs.policy.safety.clock_tolerance_s:  # a host whose clock is ahead; or no number
        return None, f"the newest telemetry is {-age_s:.0f} s ahead of this host's clock"
    return inputs.window, None


def _of_what_runs(window: Observations, state: LoopState, now: Moment) -> Observations:
    """Leave out what was seen of tasks before they were placed as they are: it tells of their old form.

    A file of observations that nobody wrote anew would otherwise count the same memory that ran out, and
    the same steps, for every form a task is moved to.
    """
    until_s = state.clock.loop_s - max(0.0, now.wall_s - window.until_s)
    old = {each.task for each in state.clocks if each.placed_s is not None and each.placed_s >= until_s}
    if not old:
        return window
    oom = EventKind.OUT_OF_MEMORY
    return msgspec.structs.replace(
        window,
        seen=tuple(each for each in window.seen if each.form is not None or each.task not in old),
        progress=tuple(each for each in window.progress if each.task not in old),
        events=tuple(each for each in window.events if each.kind is not oom or each.task not in old),
    )


def _rounded(seconds: float) -> float:
    """Round to two figures: the horizon is no better known, and steady inputs stay the same."""
    return round(seconds, 1 - math.floor(math.log10(seconds)))


def _running(problem: Problem) -> list[str]:
    return [held.task for held in problem.running]


def _clocks(
    problem: Problem, state: LoopState, window: Observations | None, policy: ReplanPolicy
) -> tuple[TaskClock, ...]:
    """Start the clocks of tasks not seen before, and note progress; those of gone tasks are dropped."""
    now = state.clock.loop_s
    runs = set(_running(problem))
    steps = {each.task: each.steps for each in (window.progress if window else ())}
    known = {clock.task for clock in state.clocks if clock.waits_since_s is None}
    found = []
    for task in sorted(problem.task_of):
        clock = state.clock_for(task)
        if task in runs:
            unknown = task in known and clock.placed_s is None
            # what ran before the loop began was placed who knows when: it has stayed long enough
            since = now if clock.placed_s is None and not unknown and state.looks > 1 else clock.placed_s
            done = clock.progressed or steps.get(task, 0.0) >= max(policy.safety.least_steps, 1e-9)
            clock = replace(clock, placed_s=since, waits_since_s=None, progressed=done)
        else:
            since = now if clock.waits_since_s is None else clock.waits_since_s
            clock = replace(clock, placed_s=None, progressed=False, waits_since_s=since)
        found.append(clock)
    return tuple(found)


def _remember(state: LoopState, problem: Problem, paused: frozenset[str]) -> LoopState:
    return replace(
        state,
        tasks=tuple(sorted((task.id, task.weight) for task in problem.tasks)),
        gpus=tuple(sorted(problem.cluster.gpus)),
        quotas=quota_key(problem),
        paused=tuple(sorted(paused)),
    )


def _limits(
    inputs: LookInputs, state: LoopState, window: Observations | None, market: Market
) -> tuple[dict[int, guards.Held], dict[int, frozenset[int]], tuple[str, ...]]:
    """Say which tasks stay as they are, and which configurations nobody may take."""
    banned, notes = guards.unsafe_configurations(market, window, inputs.rigid)
    held: dict[int, guards.Held] = {}
    for t, task in enumerate(market.tasks):
        paused = task.id in inputs.paused
        if paused:
            banned[t] = frozenset(range(len(task.worth)))
        if not task.held_gpus or task.broken:
            continue
        spec, clock = task.priced.task, state.clock_for(task.id)
        why = (
            guards.not_safe(spec, window, inputs.policy.safety)
            if paused
            else guards.held_back(spec, clock, state.clock.loop_s, window, inputs.policy)
        )
        if why is not None:
            held[t] = why
    return held, banned, notes
