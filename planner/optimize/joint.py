"""Tasks that may run jointly, as further tasks of the master, with their exclusions and values.

A joint task is listed after the others. Its value is the sum of its
members' values, and each of its candidates excludes every candidate of its members (`base_constraints`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from libra_plan.errors import WorkloadError
from libra_plan.models.topology import GpuId
from libra_plan.planner.configurations.joint import JointTask, joint_task, own_role
from libra_plan.planner.plan import Configuration, CpuShare, JointRun, Phase, PlacedRole, Pool
from libra_plan.planner.problem import (
    CouplingKind,
    IncumbentTask,
    IncumbentWorkers,
    Policy,
    Problem,
    Sharing,
    Task,
)

__all__ = [
    "held_jointly",
    "joint_run",
    "joint_tasks",
    "own_configuration",
    "own_roles",
    "own_shares",
    "shares_now",
    "starts_anew",
]


def joint_tasks(problem: Problem, among: Iterable[str]) -> list[JointTask]:
    """Make a task of every set that may run jointly, if all of it is among some tasks.

    Refuses sets whose members have settings that hold for a task on its own only.
    """
    names = set(among)
    if not problem.sharing or not names:
        return []
    if problem.policy is not Policy.THROUGHPUT:
        raise WorkloadError(
            f"the policy {problem.policy.value} plans every task on its own, and tasks may share pools",
            got=", ".join(sharing.id for sharing in problem.sharing),
            allowed="throughput",
            way_out="use --policy throughput, or take `sharing` out of the workload",
        )
    found = []
    for sharing in problem.sharing:
        if set(sharing.tasks) <= names:
            members = [problem.task_of[name] for name in sharing.tasks]
            _check(sharing, members)
            found.append(joint_task(sharing, members))
    return found


def _check(sharing: Sharing, members: Sequence[Task]) -> None:
    """Refuse settings that have no meaning for tasks that run jointly."""
    reasons = [reason for member in members for reason in _reasons(member)]
    kinds = {member.coupling.kind for member in members}
    if len(kinds) > 1:
        reasons.append(f"they couple their pools in different ways: {', '.join(sorted(kinds))}")
    if len(members) != 2:
        reasons.append(f"two tasks take turns, not {len(members)}")
    if len(set(sharing.tasks)) < max(2, len(members)):
        reasons.append("at least two different tasks can share something")
    if reasons:
        raise WorkloadError(
            f"tasks {', '.join(sharing.tasks)} cannot share: {sharing.kind.value}",
            got="; ".join(reasons),
            way_out="take what stands in the way out of the tasks, or them out of `sharing`",
        )


def _reasons(task: Task) -> Iterable[str]:
    if task.coupling.kind is not CouplingKind.SYNC:
        yield f"{task.id} is {task.coupling.kind.value}, and only sync tasks leave their pools in turn"
    if len(task.gpu_roles) < 2:
        yield f"{task.id} has one role on GPUs, so its pool is never free"
    if any(role.pinned_gpus or role.excluded_gpus for role in task.roles):
        yield f"{task.id} has pinned or excluded GPUs"
    for key, asked in (
        ("min_gpus", task.min_gpus),
        ("deadline", task.deadline),
        ("min_steps_per_hour", task.min_steps_per_s),
        ("latency_first", task.latency_first),
    ):
        if asked:
            yield f"{task.id} has `{key}`, which holds for a task on its own"


# ---------------------------------------------------------------- running tasks


def held_jointly(problem: Problem, joint: JointTask) -> IncumbentTask | None:
    """Return the placement of a joint task; None unless its members share GPUs now."""
    held = {each.task: each for each in problem.running}
    if not all(member.id in held for member in joint.members):
        return None
    now = [held[member.id] for member in joint.members]
    if not _meet(now):
        return None
    roles = [replace(role, role=f"{each.task}/{role.role}") for each in now for role in each.roles]
    workers = [
        IncumbentWorkers(f"{each.task}/{share.role}", share.node, share.workers)
        for each in now
        for share in each.workers
    ]
    return IncumbentTask(joint.id, tuple(roles), tuple(workers))


def _meet(now: Sequence[IncumbentTask]) -> bool:
    """Return whether every member holds GPUs that another one holds, too."""
    return all(any(_gpus(own) & _gpus(other) for other in now if other is not own) for own in now)


def shares_now(problem: Problem, task: str) -> bool:
    """Return whether a running task shares GPUs with another; to end that, it must start again."""
    return task in problem.sharing_now


def _gpus(held: IncumbentTask) -> set[GpuId]:
    return {gpu for role in held.roles for replica in role.replicas for gpu in replica}


# ---------------------------------------------------------------- parts of each member


def joint_run(joint: JointTask, configuration: Configuration) -> JointRun:
    """Return the entry of the plan for tasks that run jointly in a configuration."""
    return JointRun(joint.sharing.kind, joint.sharing.tasks, configuration)


def own_configuration(member: Task, configuration: Configuration) -> Configuration:
    """Return a member's part of a joint configuration: its roles, in pools as large as they are."""
    pools = [pool for each in configuration.phases[0].pools if (pool := _own_pool(member, each)) is not None]
    blocks: dict[tuple[str, int], int] = {}
    for pool in pools:
        blocks[pool.gpu_class, pool.block_gpus] = (
            blocks.get((pool.gpu_class, pool.block_gpus), 0) + pool.blocks
        )
    return Configuration(
        member.id,
        (Phase(tuple(pools)),),
        configuration.step_time_s,
        tuple((name, size, number) for (name, size), number in sorted(blocks.items())),
        max(pool.peak_mib for pool in pools),
    )


def _own_pool(member: Task, pool: Pool) -> Pool | None:
    own = tuple(
        replace(choice, role=name)
        for choice in pool.choices
        if (name := _own_name(member, choice.role)) is not None
    )
    return replace(pool, choices=own) if own else None


def _own_name(member: Task, name: str) -> str | None:
    """Return a member's own name of a joint role; None when the role is another member's."""
    task, role = own_role(name)
    return role if task == member.id else None


def own_roles(member: Task, placed: Sequence[PlacedRole]) -> tuple[PlacedRole, ...]:
    """Return a member's part of a joint placement, in the order of its roles."""
    mine: Mapping[str, PlacedRole] = {
        name: PlacedRole(name, replace(each.choice, role=name), each.replicas)
        for each in placed
        if (name := _own_name(member, each.role)) is not None
    }
    return tuple(mine[role.id] for role in member.gpu_roles)


def own_shares(member: Task, shares: Sequence[CpuShare]) -> tuple[CpuShare, ...]:
    """Return a member's CPU workers of a joint placement."""
    named = ((own_role(share.role), share) for share in shares)
    return tuple(replace(share, role=role) for (task, role), share in named if task == member.id)


def starts_anew(problem: Problem, joint: JointTask, placed: Sequence[PlacedRole]) -> frozenset[str]:
    """Name the members of the running plan that are moved: all of them, unless every one stays as it is."""
    held = {each.task: {role.role: role.placed for role in each.roles} for each in problem.running}
    now = {
        member.id: {role.role: role.placed for role in own_roles(member, placed)} for member in joint.members
    }
    same = all(held.get(name) == roles for name, roles in now.items())
    return frozenset() if same else frozenset(held.keys() & now.keys())
