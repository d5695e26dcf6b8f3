"""The snapshot that one look decides from: what is known, what changed, what may change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from libra_plan.planner.controller.choose import (
    AllowedChanges,
    Chosen,
    Comparison,
    Proposal,
    choose,
    compare,
    kept_choice,
)
from libra_plan.planner.controller.configuration_values import (
    ConfigurationValues,
    Floats,
    ValueCache,
    charged,
)
from libra_plan.planner.controller.estimators import RateErrors, corrected, rate_errors, updated
from libra_plan.planner.controller.events import (
    events_since,
    lost_gpus,
    quota_key,
    urgent_tasks,
    without_gpus,
)
from libra_plan.planner.controller.guards import (
    HoldReason,
    reason_to_hold,
    unsafe_configurations,
    unsafe_to_stop,
    without_oom_forms,
)
from libra_plan.planner.controller.hysteresis import ReplanPolicy, expected_stay_s
from libra_plan.planner.controller.state import Clock, LoopState, TaskClock, digest_of, to_bytes
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import Event, EventKind, Moment, Observations

__all__ = ["LoopInputs", "Snapshot", "advanced", "take_snapshot"]


@dataclass(frozen=True)
class LoopInputs:
    """The inputs of a look, besides the state: equal inputs give equal decisions, bit for bit.

    `problem` is priced for the middle of the expected stay, its `restart_s` is the 90th percentile of what
    moves cost. `today` is the same priced for now, which observations are compared with (None: `problem`
    is that, too). `paused` are tasks that their user wants paused, `rigid` those whose checkpoints load
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
class Snapshot:
    """What a look knows before it compares choices.

    `state` has the clocks and estimates of this look, `observed` what is fresh and of what runs now, and
    `stale` why nothing is. `charged` and `errors` belong to the configurations in `table`, per task.
    `held` are the reasons why tasks stay as they are, `banned` the configurations that are not allowed.
    """

    inputs: LoopInputs
    observed: Observations | None
    stale: str | None
    state: LoopState
    problem: Problem
    events: tuple[Event, ...]
    table: ConfigurationValues
    charged: tuple[Floats, ...]
    errors: tuple[Floats, ...]
    rates: RateErrors
    held: Mapping[int, HoldReason]
    banned: Mapping[int, frozenset[int]]
    notes: tuple[str, ...]

    @property
    def policy(self) -> ReplanPolicy:
        """Return the policy."""
        return self.inputs.policy

    @property
    def running(self) -> float:
        """Return the value of what runs."""
        return sum(float(self.charged[t][c]) for t, c in kept_choice(self.table).items())

    @property
    def broken(self) -> frozenset[str]:
        """Return the tasks that run and cannot stay as they are."""
        return frozenset(task.id for task in self.table.tasks if task.broken)

    @property
    def urgent_waiting(self) -> frozenset[str]:
        """Return the urgent tasks that wait: others may be moved for them on the first look."""
        runs = {held.task for held in self.problem.running}
        return urgent_tasks(self.problem, self.events) - runs - self.inputs.paused

    def choose(self, prices: Floats | None, frozen: frozenset[int] = frozenset()) -> Proposal:
        """Find the best choice; tasks that are held back or `frozen` stay as they are."""
        allowed = AllowedChanges(frozenset(self.held) | frozen, self.banned)
        return choose(self.table, self.charged, allowed, self.policy.rule.keep_within, prices)

    def compare(self, chosen: Chosen, values: Sequence[Floats] | None = None) -> Comparison:
        """Compare a choice with what runs, by the charged values or by others."""
        return compare(self.table, chosen, values or self.charged, self.errors, self.policy.trust.confidence)


def advanced(clock: Clock, now: Moment, tolerance_s: float) -> tuple[Clock, str | None]:
    """Move the loop's clock on; a sentence when the wall clock jumped (A078).

    Within one boot the boot's clock counts. Across boots the wall clock has to do, and only forwards.
    """
    last = clock.last
    if last is None:
        return replace(clock, last=now), None
    wall_s = now.wall_s - last.wall_s
    if now.boot == last.boot:
        boot_s = max(0.0, now.boot_s - last.boot_s)
        off_s, jumped = wall_s - boot_s, None
        if abs(off_s) > tolerance_s:
            jumped = f"the wall clock went {off_s:+.0f} s off within {boot_s:.0f} s"
        return Clock(clock.loop_s + boot_s, now), jumped
    if wall_s < 0:
        return replace(clock, last=now), f"the host restarted and its clock went back {-wall_s:.0f} s"
    return Clock(clock.loop_s + wall_s, now), None


def take_snapshot(inputs: LoopInputs, before: LoopState, clock: Clock, cache: ValueCache) -> Snapshot:
    """Process observations and events, correct the problem, and find out what may change."""
    policy = inputs.policy
    state = replace(before, looks=before.looks + 1, clock=clock)
    known = None if inputs.window is None else _of_placed(inputs.window, state, inputs.now)
    stale = _staleness(known, inputs)
    observed = known if stale is None else None
    reported = () if known is None else known.events
    lost = lost_gpus(inputs.problem, state, reported)
    problem = without_gpus(inputs.problem, lost)
    events = events_since(problem, before, reported, inputs.paused)
    tracked = state.tracked
    if observed is not None:
        tracked = updated(tracked, inputs.today or inputs.problem, observed.seen, policy.trust)
    problem = corrected(problem, tracked)
    state = replace(state, lost=tuple(lost.items()), tracked=tracked)
    state = replace(state, clocks=_clocks(problem, state, observed, policy))
    problem, clocks = without_oom_forms(problem, state, known, policy)
    state = replace(state, clocks=clocks)
    stay_s = expected_stay_s(state, [held.task for held in problem.running], policy.stay)
    problem = replace(problem, horizon_s=stay_s)
    table = cache.values_of(problem, digest_of(to_bytes(problem)))
    rates = rate_errors(tracked)
    pairs = [charged(task, problem, policy, rates) for task in table.tasks]
    held, banned, notes = _limits(inputs, state, observed, table)
    notes += tuple(_elastic_slips(problem, policy))
    state = replace(
        state,
        tasks=tuple(sorted((task.id, task.weight) for task in problem.tasks)),
        gpus=tuple(sorted(problem.cluster.gpus)),
        quotas=quota_key(problem),
        paused=tuple(sorted(inputs.paused)),
    )
    values, errors = (tuple(pair[n] for pair in pairs) for n in (0, 1))
    return Snapshot(
        inputs, observed, stale, state, problem, events, table, values, errors, rates, held, banned, notes
    )


def _staleness(observed: Observations | None, inputs: LoopInputs) -> str | None:
    """Return why the telemetry is not usable; None when it is fresh."""
    if observed is None:
        return "there is no telemetry"
    safety, age_s = inputs.policy.safety, inputs.now.wall_s - observed.until_s
    if age_s > safety.telemetry_max_age_s:
        return f"the newest telemetry is {age_s:.0f} s old"
    if not age_s >= -safety.clock_tolerance_s:  # a host whose clock is ahead; or no number
        return f"the newest telemetry is {-age_s:.0f} s ahead of this host's clock"
    return None


def _of_placed(observed: Observations, state: LoopState, now: Moment) -> Observations:
    """Drop observations of tasks from before their present placement: they describe the old form.

    A file of observations that nobody writes any more would otherwise count the same memory that ran out,
    and the same steps, for every form that a task is moved to.
    """
    until_s = state.clock.loop_s - max(0.0, now.wall_s - observed.until_s)
    old = {each.task for each in state.clocks if each.placed_s is not None and each.placed_s >= until_s}
    if not old:
        return observed
    oom = EventKind.OUT_OF_MEMORY
    return msgspec.structs.replace(
        observed,
        seen=tuple(each for each in observed.seen if each.form is not None or each.task not in old),
        progress=tuple(each for each in observed.progress if each.task not in old),
        events=tuple(each for each in observed.events if each.kind is not oom or each.task not in old),
    )


def _clocks(
    problem: Problem, state: LoopState, observed: Observations | None, policy: ReplanPolicy
) -> tuple[TaskClock, ...]:
    """Start the clocks of tasks that are new, and note progress; those of tasks that are gone are dropped."""
    now = state.clock.loop_s
    runs = {held.task for held in problem.running}
    steps = {each.task: each.steps for each in (observed.progress if observed else ())}
    ran = {clock.task for clock in state.clocks if clock.waits_since_s is None}
    found = []
    for task in sorted(problem.task_of):
        clock = state.clock_for(task)
        if task in runs:
            # when earlier tasks were placed is unknown: they have stayed long enough
            long_ago = task in ran and clock.placed_s is None
            since = now if clock.placed_s is None and not long_ago and state.looks > 1 else clock.placed_s
            done = clock.progressed or steps.get(task, 0.0) >= max(policy.safety.least_steps, 1e-9)
            clock = replace(clock, placed_s=since, waits_since_s=None, progressed=done)
        else:
            since = now if clock.waits_since_s is None else clock.waits_since_s
            clock = replace(clock, placed_s=None, progressed=False, waits_since_s=since)
        found.append(clock)
    return tuple(found)


def _limits(
    inputs: LoopInputs, state: LoopState, observed: Observations | None, table: ConfigurationValues
) -> tuple[dict[int, HoldReason], dict[int, frozenset[int]], tuple[str, ...]]:
    """Find the tasks that must stay, and the configurations that are not allowed."""
    banned, notes = unsafe_configurations(table, observed, inputs.rigid)
    held: dict[int, HoldReason] = {}
    for t, task in enumerate(table.tasks):
        paused = task.id in inputs.paused
        if paused:
            banned[t] = frozenset(range(len(task.values)))
        if not task.held_gpus or task.broken:
            continue
        spec, clock, policy = task.priced.task, state.clock_for(task.id), inputs.policy
        if paused:
            why = unsafe_to_stop(spec, observed, policy.safety)
        else:
            why = reason_to_hold(spec, clock, state.clock.loop_s, observed, policy)
        if why is not None:
            held[t] = why
    return held, banned, notes


def _elastic_slips(problem: Problem, policy: ReplanPolicy) -> Iterator[str]:
    """Report running tasks that lack the roles which the policy names as elastic."""
    for held in problem.running:
        spec, roles = policy.elastic.tasks.get(held.task), {role.role for role in held.roles}
        if spec is not None and not {spec.training, spec.rollout} <= roles:
            yield f"{held.task} has no roles {spec.training} and {spec.rollout}"
