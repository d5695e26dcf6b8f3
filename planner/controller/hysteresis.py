"""Every threshold of the re-plan loop, and the rules by which a change must be proposed repeatedly.

`ReplanPolicy` is the policy file with what users may set (docs/replan.md); the constants above it are what
they may not. A change must be asked for on enough looks in a row, stay within the caps of one look, and pay
for itself within the expected stay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from libra_plan.planner.controller.state import LoopState, Move, Pending
from libra_plan.planner.problem import Problem
from libra_plan.profiles.counting import counted
from libra_plan.profiles.document import decode, parse_document, read_text, shown
from libra_plan.profiles.schema_base import Count, File, Name, NonNegative, Positive, Seconds, Whole

__all__ = [
    "CapPolicy",
    "ElasticPolicy",
    "ElasticTask",
    "ReplanPolicy",
    "RetentionPolicy",
    "RulePolicy",
    "SafetyPolicy",
    "StayPolicy",
    "TrustPolicy",
    "count_looks",
    "expected_stay_s",
    "looks_needed",
    "over_caps",
    "policy_schema",
    "read_policy",
]

# An estimate is begun anew when three of its last four residuals lie far off on one side.
RECENT_RESIDUALS = 4
PRIOR_LOOKS = 5.0  # the policy's noise counts as much as this many looks
CLIPPED_SIGMAS = 5.0  # the most that a single look may be off

# A role is imbalanced when its busiest GPU works so much more than the mean of the others.
IMBALANCE_RATIO = 3.0
IMBALANCE_LEAST_BUSY = 0.5
IDLE_SHARE = 0.05  # others that are less busy count as this busy

OOM_SHARE = 0.98  # of the memory that ran out: a form that is planned with as much would run out as well
LEAST_GAIN = 1e-9  # weighted fair shares; what is less is rounding
FINEST_GAP = 1e-6  # searches need not be nearer to their bound than this
CAP_ROUNDS = 16  # searches for the changes that one look may make
SEARCH_LIMIT_S = 60.0  # deterministic seconds, which no look should need
SOLVE_LIMIT_S = 20.0  # for a solve under policies other than `throughput`
PLACE_LIMIT_S = 5.0

LEASE_LOOKS = 3.0  # a planner leads a shared record for so many intervals after its last look
OVERDUE_LOOKS = 3.0  # a look is overdue after so many intervals
OVERDUE_S = 60.0  # and so many seconds more

_LESS = frozenset({"shrink", "pause"})
Share = Annotated[float, Meta(ge=0, le=1)]


class RulePolicy(File, frozen=True, kw_only=True):
    """When a change pays. Shares are of the value of each task that is changed.

    `gain_up`: least net gain of a task that gets more GPUs, or as many elsewhere; `gain_down`: of what
    gets less, or is paused for others. `looks_up` and `looks_down`: looks in a row that must say the
    same. `keep_within`: a running plan proven this near to the best is kept without a search.
    `sufficient_share`: a cheaper kind of change is taken when it brings this share of the best one.
    """

    gain_up: Share = 0.003
    gain_down: Share = 0.005
    looks_up: Count = 2
    looks_down: Count = 3
    keep_within: Share = 2e-4
    sufficient_share: Share = 0.8


class TrustPolicy(File, frozen=True, kw_only=True):
    """How sure a gain must be: `confidence` in standard deviations below the expected gain.

    `shared_error`: share of a model's error (variance) that all forms of one task have in common, and
    that therefore changes no comparison between them. `smoothing_looks`: looks that a rate is averaged
    over once it is steady; `noise`: standard deviation of one look's rate (relative) until enough
    were seen to tell; `change_sigmas`: twice the deviations that three of four looks must be off, on
    one side, to be a change and no noise.
    """

    confidence: NonNegative = 1.64
    shared_error: Share = 0.9
    smoothing_looks: Count = 200
    noise: Positive = 0.05
    change_sigmas: Positive = 4.0


class StayPolicy(File, frozen=True, kw_only=True):
    """How long things stay. The horizon of a change is the expected stay, between its two limits.

    It is the mean of the stays that were seen, unfinished ones counted, with `prior_s` weighing as
    much as `prior_stays` of them. `task_s` and `role_s`: least seconds between two changes of a task,
    and between two shifts of its elastic GPUs.
    """

    task_s: Seconds = 600.0
    role_s: Seconds = 120.0
    prior_s: Positive = 3600.0
    prior_stays: Positive = 3.0
    least_s: Positive = 600.0
    most_s: Positive = 21600.0


class CapPolicy(File, frozen=True, kw_only=True):
    """The most that one look may change, apart from broken tasks.

    `moved_gpus_share` of the cluster's GPUs (one exchange between two tasks may always be made), and
    `disturbed_tasks` that run and are moved or paused.
    """

    moved_gpus_share: Share = 0.25
    disturbed_tasks: Count = 4


class SafetyPolicy(File, frozen=True, kw_only=True):
    """Safety limits.

    A task that trains is not moved or paused without a checkpoint at most `checkpoint_max_age_s` old,
    nor before it has done `least_steps` since it was placed. Telemetry older than `telemetry_max_age_s`,
    or a wall clock that went off the boot's clock by more than `clock_tolerance_s`, changes nothing. Forms
    that ran out of memory are not used for `oom_hold_s`.
    """

    checkpoint_max_age_s: Seconds = 3600.0
    least_steps: Whole = 1
    telemetry_max_age_s: Seconds = 300.0
    clock_tolerance_s: Positive = 5.0
    oom_hold_s: Seconds = 3600.0


class ElasticTask(File, frozen=True, kw_only=True):
    """A task whose framework lets whole replicas change between training and rollout while it runs.

    `to_rollout_s` and `to_training_s`: seconds one shift costs the task (10.8 and 8.0 were published
    for Libra's hybrid pool; state your own). `join_s`: seconds that a further replica on GPUs that nobody
    holds costs the task, its start in the background not counted; without it none is added.
    """

    training: Name
    rollout: Name
    to_rollout_s: Seconds = 10.8
    to_training_s: Seconds = 8.0
    join_s: Seconds | None = None
    least_training_replicas: Count = 1
    least_rollout_replicas: Count = 1


class ElasticPolicy(File, frozen=True, kw_only=True):
    """Which tasks are elastic, and when GPUs are shifted.

    `ratio_up`: training stage time over rollout stage time above which replicas go to training;
    `ratio_down`: below which they go to rollout. `pressure_up`: queue pressure (0 to 1) of the
    rollout that asks for more of it, or forbids taking from it.
    """

    tasks: dict[str, ElasticTask] = {}  # noqa: RUF012  # msgspec copies it
    ratio_up: Positive = 1.15
    ratio_down: Positive = 0.9
    pressure_up: Share = 0.8


class RetentionPolicy(File, frozen=True, kw_only=True):
    """How many looks the record keeps: the newest `looks`, none older than `days`."""

    looks: Count = 20_000
    days: Positive = 90.0


class ReplanPolicy(File, frozen=True, kw_only=True):
    """All settings of the loop; keys that a file leaves out have their defaults."""

    schema_version: Literal[1] = 1
    every_s: Positive = 60.0
    rule: RulePolicy = RulePolicy()
    trust: TrustPolicy = TrustPolicy()
    stay: StayPolicy = StayPolicy()
    caps: CapPolicy = CapPolicy()
    safety: SafetyPolicy = SafetyPolicy()
    elastic: ElasticPolicy = ElasticPolicy()
    retention: RetentionPolicy = RetentionPolicy()


def policy_schema() -> str:
    """Return the JSON Schema (2020-12) of the policy file with every default; unknown keys are refused."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:libra-plan:schema:replan-policy:1",
        "title": "libra-plan replan-policy file",
    }
    return json.dumps({**head, **msgspec.json.schema(ReplanPolicy)}, indent=2, ensure_ascii=False)


def read_policy(file: str | Path | None) -> ReplanPolicy:
    """Read a policy file; without one, or with an empty file, every default holds."""
    if file is None:
        return ReplanPolicy()
    path = Path(file)
    text, sha256 = read_text(path)
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return ReplanPolicy()
    return decode(parse_document(text, shown(path), sha256=sha256), ReplanPolicy)


def looks_needed(action: str, rule: RulePolicy) -> int:
    """Return how many looks in a row must propose an action."""
    return rule.looks_down if action in _LESS else rule.looks_up


def count_looks(before: Iterable[Pending], asked: Iterable[tuple[str, str]]) -> tuple[Pending, ...]:
    """Count one more look for each (task, action) that is proposed again; others begin at one."""
    looks = {(each.task, each.direction): each.looks for each in before}
    return tuple(Pending(task, action, looks.get((task, action), 0) + 1) for task, action in sorted(asked))


def over_caps(problem: Problem, moves: Sequence[Move], caps: CapPolicy, broken: frozenset[str]) -> str | None:
    """Return which cap a set of changes breaks; what is broken must move and does not count.

    GPUs are moved when another task gets them, or when their task leaves all that it has. One exchange
    between two tasks may always be made, because small clusters would otherwise never change.
    """
    free = [move for move in moves if move.task not in broken]
    disturbed = [move for move in free if move.action != "start"]
    if len(disturbed) > caps.disturbed_tasks:
        return f"{counted(len(disturbed), 'task')} would be disturbed, allowed {caps.disturbed_tasks}"
    gpus = sum(
        move.gpus_after if move.action == "move" else max(0, move.gpus_after - move.gpus_before)
        for move in free
    )
    allowed = caps.moved_gpus_share * len(problem.cluster.gpus)
    if len(disturbed) > 2 and gpus > allowed:
        return f"{gpus} GPUs would be moved, allowed {allowed:.0f}"
    return None


def expected_stay_s(state: LoopState, running: Iterable[str], policy: StayPolicy) -> float:
    """Return how long a placement is expected to stay, seconds: the time in which a change must pay off.

    It is the mean of an exponential distribution over the stays that ended and those that go on
    (censored), with a prior. What ran before the loop began counts from then on. Two figures are kept:
    the stay is not known better, and unchanged inputs stay the same.
    """
    now = state.clock.loop_s
    going_on = sum(now - (state.clock_for(task).placed_s or 0.0) for task in running)
    lived = policy.prior_s * policy.prior_stays + state.stays.seconds + going_on
    mean = lived / (policy.prior_stays + state.stays.ended)
    return min(policy.most_s, max(policy.least_s, round(mean, 1 - math.floor(math.log10(mean)))))
