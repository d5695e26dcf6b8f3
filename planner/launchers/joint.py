"""The joint runs of a plan for a manifest: which tasks take turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from libra_plan.planner.launchers.manifest import JointEntry
from libra_plan.planner.plan import JointRun, Plan

__all__ = ["joint_entries", "joint_groups"]


def joint_entries(plan: Plan) -> tuple[JointEntry, ...]:
    """List the joint runs of a plan."""
    return tuple(JointEntry(kind=run.kind.value, tasks=run.tasks, turns=_turns(run)) for run in plan.joint)


def _turns(run: JointRun) -> tuple[tuple[str, ...], ...]:
    """List the roles that work at once, crosswise in two pools."""
    pools = [[choice.role for choice in pool.choices] for pool in run.configuration.phases[0].pools]
    one, other = run.tasks
    return (
        (*_of(one, pools[0]), *_of(other, pools[1])),
        (*_of(other, pools[0]), *_of(one, pools[1])),
    )


def _of(task: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.partition("/")[0] == task]


def joint_groups(plan: Plan) -> Mapping[tuple[str, str], str]:
    """Name the share group of every (task, role) that shares a pool with another task's."""
    found: dict[tuple[str, str], str] = {}
    for run in plan.joint:
        for number, pool in enumerate(run.configuration.phases[0].pools):
            found |= {_split(choice.role): f"turns{number}" for choice in pool.choices}
    return found


def _split(name: str) -> tuple[str, str]:
    task, _, role = name.partition("/")
    return task, role
