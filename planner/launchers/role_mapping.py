"""Who plays which part in a reinforcement-learning framework, or why nobody can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import UNSET

from libra_plan.planner.launchers.base import unequal_text
from libra_plan.planner.launchers.manifest import Degrees, RoleEntry, TaskEntry
from libra_plan.planner.launchers.shapes import Shape, role_gpus, shape_of, width

__all__ = ["Cast", "cast_of", "colocated", "only", "same_gpus"]

_PARTS = {
    "actor_train": "actor",
    "rollout": "rollout",
    "reference": "reference",
    "critic_train": "critic",
    "critic_score": "critic",
    "reward": "reward",
}
_UNMAPPED = {
    "judge": "frameworks call a judge as a service from outside",
    "reward_train": "training a reward model is a task of its own",
}


@dataclass(frozen=True)
class Cast:
    """The parts of one task: every role has GPUs and its nodes equally many of them."""

    task: TaskEntry
    actor: RoleEntry
    rollout: RoleEntry
    reference: RoleEntry | None
    critic: RoleEntry | None
    reward: RoleEntry | None

    @property
    def others(self) -> tuple[tuple[str, RoleEntry], ...]:
        """List reference, critic and reward where the task has them, by part."""
        pairs = (("reference", self.reference), ("critic", self.critic), ("reward", self.reward))
        return tuple((part, role) for part, role in pairs if role is not None)

    @property
    def parts(self) -> tuple[tuple[str, RoleEntry], ...]:
        """List all parts."""
        return (("actor", self.actor), ("rollout", self.rollout), *self.others)

    @property
    def shared(self) -> bool:
        """Say whether the rollout takes the actor's GPUs."""
        return same_gpus(self.actor, self.rollout)

    @property
    def asynchronous(self) -> bool:
        """Say whether rollouts run ahead of training."""
        return self.task.coupling.kind != "sync"

    @property
    def streams(self) -> bool:
        """Say whether the plan counts on asynchronous rollouts that never drain."""
        return self.task.coupling.kind == "async" and self.task.coupling.rollouts is UNSET

    def where(self, role: RoleEntry) -> str:
        """Name a role in a message."""
        return f"{self.task.id}/{role.id}"


def same_gpus(one: RoleEntry, other: RoleEntry) -> bool:
    """Say whether two roles take the same GPUs."""
    return role_gpus(one) == role_gpus(other)


def cast_of(task: TaskEntry, framework: str, reasons: list[str]) -> Cast | None:
    """Give the roles of a task their parts; what has none goes to `reasons`."""
    before = len(reasons)
    parts: dict[str, RoleEntry] = {}
    for role in task.roles:
        where = f"{task.id}/{role.id}"
        if role.kind == "env":
            reasons += _environment(where, role, framework)
        elif (part := _PARTS.get(role.kind)) is None:
            reasons.append(f"{where}: no part for a {role.kind}: {_UNMAPPED.get(role.kind, 'unknown kind')}")
        elif part in parts:
            reasons += _double(where, role, parts[part])
        else:
            parts[part] = role
            reasons += _placed(where, role, framework)
    for part in ("actor", "rollout"):
        if part not in parts:
            reasons.append(f"{task.id}: it has no {part}, which {framework} needs")
    if any(role.kind == "critic_score" for role in task.roles) and not any(
        role.kind == "critic_train" for role in task.roles
    ):
        reasons.append(f"{task.id} has a critic that scores and none that trains; it would be trained")
    if len(reasons) > before:
        return None
    return Cast(
        task,
        parts["actor"],
        parts["rollout"],
        parts.get("reference"),
        parts.get("critic"),
        parts.get("reward"),
    )


def _environment(where: str, role: RoleEntry, framework: str) -> Iterator[str]:
    if role.command:
        yield f"{where}: {framework} runs environments inside its own workers and starts no command for them"


def _double(where: str, role: RoleEntry, other: RoleEntry) -> Iterator[str]:
    """Accept a critic that scores beside the one that trains if both are one worker."""
    if {role.kind, other.kind} != {"critic_train", "critic_score"}:
        yield f"{where}: {other.id} has this part already, and there is one of each"
    elif not same_gpus(role, other) or role.layout != other.layout:
        yield f"{where}: one critic both scores and trains, so {other.id} must have its GPUs and layout"


def _placed(where: str, role: RoleEntry, framework: str) -> Iterator[str]:
    shape = shape_of(role)
    if not role.members:
        yield f"{where}: it has no GPUs, and {framework} runs it on GPUs"
    elif shape is None:
        yield f"{where}: {unequal_text(role)}"
    else:
        yield from _divides(where, role, shape)


def _divides(where: str, role: RoleEntry, shape: Shape) -> Iterator[str]:
    size = width(role)
    if shape.gpus % size:
        yield f"{where}: {shape.gpus} GPUs do not divide by tp·pp·cp = {size}"
    elif shape.per_node % size and size % shape.per_node:
        yield f"{where}: replicas of {size} GPUs would straddle nodes of {shape.per_node} unevenly"


def colocated(cast: Cast, framework: str, *parts: str) -> Iterator[str]:
    """Refuse parts that the framework keeps in the actor's processes, where they are elsewhere."""
    for part, role in cast.others:
        if part in parts and not same_gpus(role, cast.actor):
            yield f"{cast.where(role)}: {framework} keeps the {part} on the actor's GPUs"


def only(where: str, layout: Degrees | None, allowed: str, framework: str) -> Iterator[str]:
    """Refuse degrees above 1 that are not among `allowed` (as in "tp cp")."""
    for name in ("tp", "pp", "cp", "ep"):
        degree = getattr(layout, name) if layout is not None else 1
        if degree > 1 and name not in allowed.split():
            yield f"{where}: {framework} has no {name} here, and the layout has {name} {degree}"
