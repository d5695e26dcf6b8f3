"""Which models go together: one in a role, and one in the roles of a task that hold the same weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from libra_plan.errors import WorkloadError
from libra_plan.profiles.document import Document
from libra_plan.profiles.schema import ModelShape, ProfileFile, RoleSpec, TaskSpec, WorkloadFile

if TYPE_CHECKING:
    from libra_plan.profiles.catalog import LoadedProfile

__all__ = ["check_one_model", "mixed_models"]

_SAME_WEIGHTS = ("actor_train", "rollout", "reference")
"""A policy is trained, rolls out and is compared with what it was; critics, rewards and judges may differ."""


def check_one_model(
    role: RoleSpec, key: str, document: Document, profiles: Mapping[str, ProfileFile]
) -> None:
    """Refuse a role whose profiles are of different models: it runs one."""
    first = profiles[role.profiles[0]].model
    for position, name in enumerate(role.profiles):
        model = profiles[name].model
        if _size(model) != _size(first):
            raise WorkloadError(
                f"role `{role.id}` names profiles of different models",
                got=f"{name} of {model.id}, beside {role.profiles[0]} of {first.id}",
                allowed="profiles of one model in one role",
                way_out="name the profiles of the model the role runs",
                where=document.where(f"{key}.profiles[{position}]"),
            )


def mixed_models(workload: WorkloadFile, profiles: Mapping[str, LoadedProfile]) -> Iterator[str]:
    """Tell of tasks that train one model and roll out, or compare with, another."""
    for task in workload.tasks:
        found = _models(task, profiles)
        if len({_size(model) for model in found.values()}) > 1:
            named = ", ".join(f"{role} {model.id}" for role, model in found.items())
            yield (
                f"task {task.id}: actor, rollout and reference of one task are normally one model, and these "
                f"are not: {named}"
            )


def _models(task: TaskSpec, profiles: Mapping[str, LoadedProfile]) -> dict[str, ModelShape]:
    return {
        role.id: profiles[role.profiles[0]].file.model
        for role in task.roles
        if role.kind in _SAME_WEIGHTS and role.profiles and role.profiles[0] in profiles
    }


def _size(model: ModelShape) -> tuple[int, int, int]:
    """Tell models apart by their shape: sources spell the name of one model in many ways."""
    return model.layers, model.hidden, model.heads
