"""Check tasks that run jointly: the sharing is declared, and follows from the tasks' own options.

Written from docs/design/003-shared-tasks.md alone; shares no code with what makes such plans. The
tasks are put together as one, with roles named `task/role`, so that all rules for one task hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from libra_plan.planner.plan import Configuration, CpuShare, JointRun, PlacedRole, Plan, Pool, RunningTask
from libra_plan.planner.problem import CouplingKind, Problem, Sharing, Task
from libra_plan.planner.verify.configuration import check_filled
from libra_plan.planner.verify.rules import Times, Turn, Violation, arrangement_of, turns_of

__all__ = ["Whole", "check_joint", "check_whole", "joint_times", "wholes"]

Found = Iterator[Violation]


@dataclass(frozen=True)
class Whole:
    """Tasks that run jointly, as one task and one running task."""

    run: JointRun
    sharing: Sharing
    members: tuple[Task, ...]
    task: Task
    running: RunningTask


def check_joint(problem: Problem, plan: Plan) -> Found:
    """Yield joint runs that are not declared, do not run, or do not have two pools."""
    running = {task.task for task in plan.running}
    named = Counter(task for run in plan.joint for task in run.tasks)
    for task, times in named.items():
        if times > 1:
            yield Violation("joint-twice", f"runs jointly {times} times", task)
        if task not in running:
            yield Violation("joint-missing", "is said to run jointly and does not run", task)
    for run in plan.joint:
        where = "+".join(run.tasks)
        if _declared(problem, run) is None:
            yield Violation("joint-undeclared", f"no `sharing` of kind {run.kind.value} names them", where)
        phases = run.configuration.phases
        if len(phases) != 1 or len(phases[0].pools) != 2:
            yield Violation("joint-pools", "they do not run in two pools side by side", where)


def _declared(problem: Problem, run: JointRun) -> Sharing | None:
    return next((each for each in problem.sharing if (each.kind, each.tasks) == (run.kind, run.tasks)), None)


def wholes(problem: Problem, plan: Plan) -> list[Whole]:
    """Merge the tasks of every joint run into one; they must be declared and running."""
    running = {each.task: each for each in plan.running}
    found = []
    for run in plan.joint:
        sharing = _declared(problem, run)
        if sharing is not None:
            members = tuple(problem.task_of[name] for name in run.tasks)
            task = _together(sharing, members)
            own = [running[name] for name in run.tasks]
            found.append(Whole(run, sharing, members, task, _running(run, sharing, own)))
    return found


def _together(sharing: Sharing, members: Sequence[Task]) -> Task:
    most = [member.max_gpus for member in members if member.max_gpus is not None]
    return Task(
        sharing.id,
        1.0,
        tuple(replace(role, id=f"{member.id}/{role.id}") for member in members for role in member.roles),
        members[0].coupling,
        max_gpus=min(most, default=None),
        roles_fill_pools=any(member.roles_fill_pools for member in members),
    )


def _running(run: JointRun, sharing: Sharing, own: Sequence[RunningTask]) -> RunningTask:
    roles = tuple(
        PlacedRole(name, replace(placed.choice, role=name), placed.replicas)
        for each in own
        for placed in each.roles
        for name in (f"{each.task}/{placed.role}",)
    )
    shares = tuple(
        CpuShare(f"{each.task}/{share.role}", share.node, share.workers) for each in own for share in each.cpu
    )
    return RunningTask(sharing.id, run.configuration, roles, shares, 1.0)


def check_whole(whole: Whole, own: Sequence[RunningTask]) -> Found:
    """Yield where sharing does not allow the form, or a member's configuration is not its part of it."""
    yield from check_filled(whole.task, whole.run.configuration)
    for member, running in zip(whole.members, own, strict=True):
        yield from _form(whole, member)
        expected = _part(whole, member)
        if running.configuration != expected:
            message = "what it says of its configuration is not its part of the joint one"
            yield Violation("joint-part", message, member.id)
        configuration_of = {
            choice.role: choice for pool in expected.phases[0].pools for choice in pool.choices
        }
        if any(placed.choice != configuration_of.get(placed.role) for placed in running.roles):
            yield Violation("choice", "is placed in another option than its configuration says", member.id)


def _form(whole: Whole, member: Task) -> Found:
    """Check that a member's stages lie where sharing allows them."""
    part = [[choice.role for choice in pool.choices] for pool in _part(whole, member).phases[0].pools]
    order = [role.id for role in member.gpu_roles]
    if member.coupling.kind is not CouplingKind.SYNC:
        yield Violation("joint-coupling", f"is {member.coupling.kind.value} and shares pools", member.id)
    if [sorted(each, key=order.index) for each in part] != [order[: len(part[0])], order[len(part[0]) :]]:
        yield Violation("stage-order", "its pools are not a run of stages and the rest", member.id)
    if len(part) != 2:
        yield Violation("joint-pools", "does not work in both pools", member.id)
    if len(order) > 1 and arrangement_of([part]) not in {each.value for each in member.arrangements}:
        yield Violation("arrangement", f"is {arrangement_of([part])}, which it does not allow", member.id)


def _part(whole: Whole, member: Task) -> Configuration:
    """Return a member's configuration: its own roles, in the pools of all members."""
    names = {f"{member.id}/{role.id}": role.id for role in member.roles}
    pools: list[Pool] = []
    for pool in whole.run.configuration.phases[0].pools:
        own = tuple(replace(each, role=names[each.role]) for each in pool.choices if each.role in names)
        if own:
            pools.append(replace(pool, choices=own))
    counted: Counter[tuple[str, int]] = Counter()
    for pool in pools:
        counted[pool.gpu_class, pool.block_gpus] += pool.blocks
    joint = whole.run.configuration
    return Configuration(
        member.id,
        (replace(joint.phases[0], pools=tuple(pools)),),
        joint.step_time_s,
        tuple((*kind, number) for kind, number in sorted(counted.items())),
        max((pool.peak_mib for pool in pools), default=0.0),
    )


def joint_times(whole: Whole) -> Times:
    """Return the step of all members: value, low and high, seconds.

    It is the longest of what one member does and of what one pool does, with all hand-overs.
    """
    (turns,) = turns_of(whole.task, whole.run.configuration)
    value, low, high = (_one_bound(whole, turns, bound) for bound in ("value", "low", "high"))
    return value, low, high


def _one_bound(whole: Whole, turns: Sequence[Turn], bound: str) -> float:
    work = [[_work_s(turn, member.id, bound) for turn in turns] for member in whole.members]
    (one, other), handovers = work, sum(member.sync_s for member in whole.members)
    pools = (one[0] + other[0], one[1] + other[1])
    return max(sum(one), sum(other), *pools) + handovers


def _work_s(turn: Turn, member: str, bound: str) -> float:
    """Add up what a member's roles take of a pool's time, falling asleep and waking with them."""
    total = 0.0
    for role, option in zip(turn.roles, turn.options, strict=True):
        if role.id.partition("/")[0] == member:
            total += float(getattr(option.time_s, bound))
            if turn.mode.value == "sleep":
                total += (option.sleep_s or 0.0) + (option.wake_s or 0.0)
    return total
