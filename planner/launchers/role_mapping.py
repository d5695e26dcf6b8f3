"""Which role of a task is which part of a reinforcement-learning framework, or why no part fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import UNSET

from libra_plan.planner.launchers.base import Ability, unequal_text
from libra_plan.planner.launchers.manifest import DegreesEntry, RoleEntry, TaskEntry

__all__ = ["Part", "RoleMapping", "colocated", "map_roles", "only_degrees"]

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
class Part:
    """A role that is one part of a framework: it has one layout, and equally many GPUs on each of its nodes.

    `name` is actor, rollout, reference, critic or reward; `where` names the role in messages.
    """

    name: str
    where: str
    role: RoleEntry
    layout: DegreesEntry

    @property
    def gpus(self) -> frozenset[tuple[str, int]]:
        """The GPUs as (node, index)."""
        return frozenset(self.role.ranks)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, in node-rank order."""
        return tuple(member.node for member in self.role.members)

    @property
    def per_node(self) -> int:
        """The number of GPUs on each node."""
        return len(self.role.members[0].gpus)

    @property
    def width(self) -> int:
        """The number of GPUs of one replica."""
        return self.layout.tp * self.layout.pp * self.layout.cp

    def is_on(self, other: Part) -> bool:
        """Whether both take the same GPUs."""
        return self.gpus == other.gpus

    def meets(self, other: Part) -> bool:
        """Whether both take some GPU."""
        return not self.gpus.isdisjoint(other.gpus)


@dataclass(frozen=True)
class RoleMapping:
    """The parts of one task."""

    task: TaskEntry
    actor: Part
    rollout: Part
    reference: Part | None
    critic: Part | None
    reward: Part | None

    @property
    def others(self) -> tuple[Part, ...]:
        """Reference, critic and reward, where the task has them."""
        return tuple(part for part in (self.reference, self.critic, self.reward) if part is not None)

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts."""
        return (self.actor, self.rollout, *self.others)

    @property
    def shared(self) -> bool:
        """Whether the rollout takes the actor's GPUs."""
        return self.actor.is_on(self.rollout)

    @property
    def asynchronous(self) -> bool:
        """Whether rollouts run ahead of training."""
        return self.task.coupling.kind != "sync"

    @property
    def streams(self) -> bool:
        """Whether the plan counts on asynchronous rollouts that never drain."""
        return self.task.coupling.kind == "async" and self.task.coupling.rollouts is UNSET


def map_roles(task: TaskEntry, framework: str, reasons: list[str]) -> RoleMapping | None:
    """Find the part of every role of a task; what has none goes to `reasons`, and the result is None."""
    before = len(reasons)
    roles: dict[str, RoleEntry] = {}
    for role in task.roles:
        where = f"{task.id}/{role.id}"
        part = _PARTS.get(role.kind)
        if role.kind == "env":
            if role.command:
                why = "runs environments inside its own workers and starts no command for them"
                reasons.append(f"{where}: {framework} {why}")
        elif part is None:
            reasons.append(f"{where}: no part for a {role.kind}: {_UNMAPPED.get(role.kind, 'unknown kind')}")
        elif part in roles:
            reasons += _second_of_a_part(where, role, roles[part])
        else:
            roles[part] = role
            reasons += _unfit(where, role, framework)
    for part in ("actor", "rollout"):
        if part not in roles:
            reasons.append(f"{task.id}: it has no {part}, which {framework} needs")
    kinds = {role.kind for role in task.roles}
    if "critic_score" in kinds and "critic_train" not in kinds:
        reasons.append(f"{task.id} has a critic that scores and none that trains; it would be trained")
    if len(reasons) > before:
        return None
    parts = {
        name: Part(name, f"{task.id}/{role.id}", role, role.layout)
        for name, role in roles.items()
        if role.layout is not None
    }
    return RoleMapping(
        task,
        parts["actor"],
        parts["rollout"],
        parts.get("reference"),
        parts.get("critic"),
        parts.get("reward"),
    )


def _second_of_a_part(where: str, role: RoleEntry, other: RoleEntry) -> Iterator[str]:
    """Accept a critic that scores beside the one that trains if both are one worker."""
    if {role.kind, other.kind} != {"critic_train", "critic_score"}:
        yield f"{where}: {other.id} has this part already, and there is one of each"
    elif set(role.ranks) != set(other.ranks) or role.layout != other.layout:
        yield f"{where}: one critic both scores and trains, so {other.id} must have its GPUs and layout"


def _unfit(where: str, role: RoleEntry, framework: str) -> Iterator[str]:
    if not role.members:
        yield f"{where}: it has no GPUs, and {framework} runs it on GPUs"
    elif role.has_unequal_nodes:
        yield f"{where}: {unequal_text(role)}"
    elif role.layout is None:
        yield f"{where}: {Ability.MIXED_LAYOUTS.value}"
    else:
        size = role.layout.tp * role.layout.pp * role.layout.cp
        per_node = len(role.members[0].gpus)
        if len(role.ranks) % size:
            yield f"{where}: {len(role.ranks)} GPUs do not divide by tp·pp·cp = {size}"
        elif per_node % size and size % per_node:
            yield f"{where}: replicas of {size} GPUs would straddle nodes of {per_node} unevenly"


def colocated(roles: RoleMapping, framework: str, *names: str) -> Iterator[str]:
    """Refuse parts that the framework keeps in the actor's processes, where they are elsewhere."""
    for part in roles.others:
        if part.name in names and not part.is_on(roles.actor):
            yield f"{part.where}: {framework} keeps the {part.name} on the actor's GPUs"


def only_degrees(part: Part, allowed: str, framework: str) -> Iterator[str]:
    """Refuse degrees above 1 that are not among `allowed` (as in "tp cp")."""
    for name in ("tp", "pp", "cp", "ep"):
        degree = getattr(part.layout, name)
        if degree > 1 and name not in allowed.split():
            yield f"{part.where}: {framework} has no {name} here, and the layout has {name} {degree}"
