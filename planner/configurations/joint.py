"""Tasks that run jointly, as one task: its roles, the shapes it may take and the time of its step.

Everything else about configurations (pools, memory, blocks, what beats what) is as for a task on its own,
because sharing changes nothing there. Roles are named `task/role`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.quantities import Estimate
from libra_plan.planner.configurations.arrangements import Shape, arrangement_of_shape, pool_splits, shapes_of
from libra_plan.planner.configurations.pools import PoolOption
from libra_plan.planner.plan import MemoryMode, RoleChoice
from libra_plan.planner.problem import CouplingKind, Role, Sharing, SharingKind, Task

__all__ = [
    "JointTask",
    "any_shapes_of",
    "in_order",
    "joint_task",
    "members_in_first",
    "own_role",
    "step_of_pools_s",
    "step_s",
    "together",
    "works_s",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointTask(Task):
    """Tasks as one, with what they were."""

    sharing: Sharing
    members: tuple[Task, ...]


def joint_task(sharing: Sharing, members: Sequence[Task]) -> JointTask:
    """Make one task of several; one engine stands for the rollouts that share it."""
    engine = sharing.kind is SharingKind.ENGINE
    roles: list[Role] = []
    for number, member in enumerate(members):
        for role in member.roles:
            named = replace(role, id=f"{member.id}/{role.id}")
            if not engine or role.id != sharing.rollouts[number]:
                roles.append(named)
            elif number == 0:
                roles.append(_engine(named, _rollouts(sharing, members), sharing))
    limits = [task.max_gpus for task in members if task.max_gpus is not None]
    return JointTask(
        id=sharing.id,
        weight=sum(task.weight for task in members),
        roles=tuple(roles),
        coupling=members[0].coupling,
        max_gpus=min(limits, default=None),
        roles_fill_pools=any(task.roles_fill_pools for task in members),
        sharing=sharing,
        members=tuple(members),
    )


def _rollouts(sharing: Sharing, members: Sequence[Task]) -> list[Role]:
    return [
        role
        for task, name in zip(members, sharing.rollouts, strict=True)
        for role in task.roles
        if role.id == name
    ]


def _engine(first: Role, rollouts: Sequence[Role], sharing: Sharing) -> Role:
    """Make the role of the engine: within the limits of all, with the cores and memory of the neediest."""
    limits = [role.max_gpus for role in rollouts if role.max_gpus is not None]
    return replace(
        first,
        options=sharing.options,
        min_gpus=max(role.min_gpus for role in rollouts),
        max_gpus=min(limits, default=None),
        cpu_cores_per_gpu=max(role.cpu_cores_per_gpu for role in rollouts),
        host_memory_mib_per_gpu=max(role.host_memory_mib_per_gpu for role in rollouts),
    )


def own_role(name: str) -> tuple[str, str]:
    """Split the name of a joint role into task and role."""
    task, _, role = name.partition("/")
    return task, role


def any_shapes_of(task: Task) -> list[Shape]:
    """List the shapes of a task, be it one or several that run jointly."""
    return _joint_shapes(task) if isinstance(task, JointTask) else shapes_of(task)


def members_in_first(task: Task, roles: Sequence[Role]) -> int:
    """Count the roles of a pool that are the first member's, where other members work there too."""
    if not isinstance(task, JointTask) or task.sharing.kind is not SharingKind.TURNS:
        return 0
    return sum(own_role(role.id)[0] == task.members[0].id for role in roles)


def _joint_shapes(joint: JointTask) -> list[Shape]:
    """List the shapes: two pools that each member fills with a run of its stages, or the engine apart.

    Each member alone must allow the arrangement that the shape gives it.
    """
    numbers = [
        [at for at, role in enumerate(joint.gpu_roles) if own_role(role.id)[0] == member.id]
        for member in joint.members
    ]
    if joint.sharing.kind is SharingKind.TURNS:
        cuts = [_cuts(each, member) for each, member in zip(numbers, joint.members, strict=True)]
        return [((a[0] + b[0], a[1] + b[1]),) for a, b in product(*cuts)]
    engine = numbers[0].index(_engine_number(joint))
    own = [numbers[0][:engine] + numbers[0][engine + 1 :], *numbers[1:]]
    rests = [
        [
            pools
            for pools in pool_splits(tuple(each), member)
            if not each or arrangement_of_shape((((-1,), *pools),)) in member.arrangements
        ]
        for each, member in zip(own, joint.members, strict=True)
    ]
    return [(((numbers[0][engine],), *sum(choice, ())),) for choice in product(*rests)]


def _cuts(numbers: Sequence[int], member: Task) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """List the ways to cut a member's stages into two runs."""
    cuts = [(tuple(numbers[:at]), tuple(numbers[at:])) for at in range(1, len(numbers))]
    return [cut for cut in cuts if arrangement_of_shape((cut,)) in member.arrangements]


def _engine_number(joint: JointTask) -> int:
    name = f"{joint.members[0].id}/{joint.sharing.rollouts[0]}"
    return next(at for at, role in enumerate(joint.gpu_roles) if role.id == name)


def works_s(
    joint: JointTask, pool: int, option: PoolOption, read: Callable[[Estimate], float]
) -> tuple[float, ...]:
    """Give the seconds a pool adds to each of the works that make up a step.

    `turns`: two members in the first pool, then two in the second. `engine`: those of the slowest
    member that is complete (none yet), of the member in hand, and of the engine. Roles that sleep
    count with falling asleep and waking.
    """
    members = [member.id for member in joint.members]
    turns = joint.sharing.kind is SharingKind.TURNS
    works = [0.0] * (4 if turns else 3)
    for choice in option.pool.choices:
        at = 2 * pool + members.index(own_role(choice.role)[0]) if turns else 2 if pool == 0 else 1
        works[at] += _role_s(choice, option.pool.memory_mode, read)
    return tuple(works)


def _role_s(choice: RoleChoice, mode: MemoryMode, read: Callable[[Estimate], float]) -> float:
    option = choice.option
    return read(option.time_s) + (option.switch_s if mode is MemoryMode.SLEEP else 0.0)


def in_order(joint: JointTask, pools: Sequence[PoolOption]) -> list[tuple[int, Task | None]]:
    """Give the order in which pools are put together, and the member that each one completes.

    `engine`: the pools of one member after the other, the engine last.
    """
    if joint.sharing.kind is SharingKind.TURNS:
        return [(0, None), (1, None)]
    owners = [own_role(option.pool.choices[0].role)[0] for option in pools]
    order: list[tuple[int, Task | None]] = []
    for member in joint.members:
        mine = [number for number in range(1, len(pools)) if owners[number] == member.id]
        order += [(number, member if number == mine[-1] else None) for number in mine]
    return [*order, (0, None)]


def together(works: Floats, more: Floats, completes: Task | None) -> Floats:
    """Add the works of a further pool to those so far, shape (configurations, works)."""
    total: Floats = works + more
    if completes is None:
        return total
    slowest, member, engine = total.T
    return np.stack((np.maximum(slowest, member + completes.sync_s), np.zeros_like(member), engine), axis=1)


def step_s(joint: JointTask, works: Floats) -> Floats:
    """Give the step of all members, seconds, by configuration, from works of shape (configurations, works).

    `turns`: the first member in the first pool beside the second in the second, then the other way
    round; a hand-over of weights takes both pools. `engine`: members begin together, so the step is
    that of the slowest.
    """
    if joint.sharing.kind is SharingKind.TURNS:
        first_a, first_b, second_a, second_b = works.T
        handovers_s = sum(member.sync_s for member in joint.members)
        slots: Floats = np.maximum(first_a, second_b) + np.maximum(first_b, second_a)
        return slots + handovers_s
    slowest, _, engine = works.T
    if joint.coupling.kind is CouplingKind.SYNC:
        rounds: Floats = engine + slowest
        return rounds
    handed_over_s = max(_handover_s(member) for member in joint.members)
    longer: Floats = np.maximum(engine + handed_over_s, slowest)
    return longer


def _handover_s(member: Task) -> float:
    return member.sync_s if len(member.gpu_roles) > 1 else 0.0


def step_of_pools_s(
    joint: JointTask, pools: Sequence[PoolOption], read: Callable[[Estimate], float]
) -> float:
    """Give the step of all members in some pools, seconds."""
    total = np.zeros((1, len(works_s(joint, 0, pools[0], read))))
    for number, completes in in_order(joint, pools):
        total = together(total, np.array([works_s(joint, number, pools[number], read)]), completes)
    return float(step_s(joint, total)[0])
