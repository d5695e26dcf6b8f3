"""What a manifest holds of tasks that run jointly: who takes turns with whom, or which engine serves all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from libra_plan.planner.launchers.manifest import JointEntry
from libra_plan.planner.plan import JointRun, Plan
from libra_plan.planner.problem import SharingKind

__all__ = ["joint_entries", "joint_groups", "served_elsewhere"]


def joint_entries(plan: Plan) -> tuple[JointEntry, ...]:
    """List the joint runs of a plan."""
    return tuple(
        JointEntry(kind=run.kind.value, tasks=run.tasks, turns=_turns(plan, run)) for run in plan.joint
    )


def _turns(plan: Plan, run: JointRun) -> tuple[tuple[str, ...], ...]:
    """List what works at once: crosswise in two pools, or the engine alone and then the rest."""
    pools = [[choice.role for choice in pool.choices] for pool in run.configuration.phases[0].pools]
    if run.kind is SharingKind.TURNS:
        one, other = run.tasks
        return (
            (*_of(one, pools[0]), *_of(other, pools[1])),
            (*_of(other, pools[0]), *_of(one, pools[1])),
        )
    engines = tuple(f"{task}/{role}" for task, role in zip(run.tasks, _rollouts(plan, run), strict=True))
    return engines, tuple(name for pool in pools[1:] for name in pool)


def _of(task: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.partition("/")[0] == task]


def _rollouts(plan: Plan, run: JointRun) -> list[str]:
    """Name each member's rollout: the one role of its first pool."""
    configurations = {running.task: running.configuration for running in plan.running}
    return [configurations[task].phases[0].pools[0].choices[0].role for task in run.tasks]


def joint_groups(plan: Plan) -> Mapping[tuple[str, str], str]:
    """Name the share group of every (task, role) that shares a pool with another task's."""
    found: dict[tuple[str, str], str] = {}
    for run, entry in zip(plan.joint, joint_entries(plan), strict=True):
        if run.kind is SharingKind.ENGINE:
            found |= {_split(name): "engine" for name in entry.turns[0]}
            continue
        for number, pool in enumerate(run.configuration.phases[0].pools):
            found |= {_split(choice.role): f"turns{number}" for choice in pool.choices}
    return found


def served_elsewhere(plan: Plan) -> frozenset[tuple[str, str]]:
    """Name the (task, role) rollouts whose work another task's engine does, and whose needs it has."""
    engines = [entry.turns[0][1:] for entry in joint_entries(plan) if entry.kind == SharingKind.ENGINE.value]
    return frozenset(_split(name) for names in engines for name in names)


def _split(name: str) -> tuple[str, str]:
    task, _, role = name.partition("/")
    return task, role
