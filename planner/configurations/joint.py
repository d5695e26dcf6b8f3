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
from libra_plan.planner.configurations.arrangements import Shape, arrangement_of_shape, task_shapes
from libra_plan.planner.configurations.pools import PoolOption, PoolTable
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Role, Sharing, Task

__all__ = [
    "JointTask",
    "any_shapes_of",
    "joint_task",
    "members_in_first",
    "own_role",
    "step_of_pools_s",
    "step_s",
    "works_s",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointTask(Task):
    """Several tasks as one, with the original tasks."""

    sharing: Sharing
    members: tuple[Task, ...]


def joint_task(sharing: Sharing, members: Sequence[Task]) -> JointTask:
    """Make one task of several."""
    limits = [task.max_gpus for task in members if task.max_gpus is not None]
    return JointTask(
        id=sharing.id,
        weight=sum(task.weight for task in members),
        roles=tuple(
            replace(role, id=f"{member.id}/{role.id}") for member in members for role in member.roles
        ),
        coupling=members[0].coupling,
        max_gpus=min(limits, default=None),
        roles_fill_pools=any(task.roles_fill_pools for task in members),
        sharing=sharing,
        members=tuple(members),
    )


def own_role(name: str) -> tuple[str, str]:
    """Split the name of a joint role into task and role."""
    task, _, role = name.partition("/")
    return task, role


def any_shapes_of(task: Task) -> list[Shape]:
    """List the shapes of a task, be it one or several that run jointly."""
    return _joint_shapes(task) if isinstance(task, JointTask) else task_shapes(task)


def members_in_first(task: Task, roles: Sequence[Role]) -> int:
    """Count the roles of a pool that are the first member's, where other members work there too."""
    if not isinstance(task, JointTask):
        return 0
    return sum(own_role(role.id)[0] == task.members[0].id for role in roles)


def _joint_shapes(joint: JointTask) -> list[Shape]:
    """List the shapes: two pools, each of which takes a run of the stages of both members.

    Each member alone must allow the arrangement that the shape gives it.
    """
    cuts = []
    for member in joint.members:
        numbers = [at for at, role in enumerate(joint.gpu_roles) if own_role(role.id)[0] == member.id]
        cuts.append(_cuts(numbers, member))
    return [((a[0] + b[0], a[1] + b[1]),) for a, b in product(*cuts)]


def _cuts(numbers: Sequence[int], member: Task) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """List the ways to cut a member's stages into two runs."""
    cuts = [(tuple(numbers[:at]), tuple(numbers[at:])) for at in range(1, len(numbers))]
    return [cut for cut in cuts if arrangement_of_shape((cut,)) in member.arrangements]


def works_s(joint: JointTask, number: int, pool: PoolTable) -> Floats:
    """Return the seconds that each pool works for two members in the first pool, then for two in the second.

    `number` is the pool's. Roles that sleep count with falling asleep and waking.
    """
    works = np.zeros((len(pool), 4))
    for role, role_s in zip(pool.members, pool.role_s.T, strict=True):
        works[:, 2 * number + _member(joint, role.role.id)] += role_s
    return works


def _member(joint: JointTask, role: str) -> int:
    return [member.id for member in joint.members].index(own_role(role)[0])


def step_s(joint: JointTask, works: Floats) -> Floats:
    """Return the step of both members, seconds, by configuration, from works of shape (configurations, 4).

    The first member works in the first pool beside the second in the second, then the other way round; a
    hand-over of weights takes both pools.
    """
    first_a, first_b, second_a, second_b = works.T
    handovers_s = sum(member.sync_s for member in joint.members)
    slots: Floats = np.maximum(first_a, second_b) + np.maximum(first_b, second_a)
    return slots + handovers_s


def step_of_pools_s(
    joint: JointTask, pools: Sequence[PoolOption], read: Callable[[Estimate], float]
) -> float:
    """Return the step of both members in two pools, seconds."""
    works = np.zeros((1, 4))
    for number, option in enumerate(pools):
        sleeps = option.pool.memory_mode is MemoryMode.SLEEP
        for choice in option.pool.choices:
            seconds = read(choice.option.time_s) + (choice.option.switch_s if sleeps else 0.0)
            works[0, 2 * number + _member(joint, choice.role)] += seconds
    return float(step_s(joint, works)[0])
