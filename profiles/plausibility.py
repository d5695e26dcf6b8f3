"""Warnings about files that are valid but probably not what was meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from libra_plan.profiles import wording
from libra_plan.profiles.role_checks import same_model
from libra_plan.profiles.schema import ClusterFile, Point, RoleSpec, WorkloadFile

if TYPE_CHECKING:
    from libra_plan.profiles.catalog import LoadedProfile

__all__ = ["longest_measured", "mixed_models", "unmeasured_asks", "unmeasured_classes"]

_SAME_WEIGHTS = ("actor_train", "rollout", "reference")
"""A policy is trained, rolls out and is compared with what it was; critics, rewards and judges may differ."""
_OCTAVE = 2


def longest_measured(points: Iterable[Point]) -> int:
    """Return the longest sequence that ran, tokens: a micro-batch is packed as one of them."""
    return int(max((p.seq_len_tokens or 0 for p in points if p.status == "ok"), default=0))


def mixed_models(workload: WorkloadFile, profiles: Mapping[str, LoadedProfile]) -> Iterator[str]:
    """Yield a warning for each task that trains one model and rolls out, or compares with, another."""
    for task in workload.tasks:
        models = {
            role.id: profiles[role.profiles[0]].file.model
            for role in task.roles
            if role.kind in _SAME_WEIGHTS and role.profiles and role.profiles[0] in profiles
        }
        if not all(same_model(model, next(iter(models.values()))) for model in models.values()):
            named = ", ".join(f"{role} {model.id}" for role, model in models.items())
            yield (
                f"task {task.id}: actor, rollout and reference of one task are normally one model, and these "
                f"are not: {named}"
            )


def unmeasured_asks(workload: WorkloadFile, profiles: Mapping[str, LoadedProfile]) -> Iterator[str]:
    """Yield a warning for each micro-batch and layout that `solve` refuses for want of measurements."""
    for task in workload.tasks:
        for role in task.roles:
            points = [p for name in role.profiles if name in profiles for p in profiles[name].points]
            if points:
                yield from (f"{task.id}/{role.id}: {said}" for said in _asks(role, points))


def _asks(role: RoleSpec, points: Collection[Point]) -> Iterator[str]:
    longest, cp = longest_measured(points), max((each.cp for each in role.layouts), default=1)
    tokens = (role.micro_batch_tokens or 0) * cp
    if longest and tokens > _OCTAVE * longest:
        yield (
            f"micro_batch_tokens {role.micro_batch_tokens} is beyond what was measured, up to {longest} "
            f"tokens: solve refuses a full micro-batch above {_OCTAVE * longest} without --allow-prior"
        )
    known = {(p.tp, p.pp, p.cp, p.ep) for p in points if p.status == "ok"}
    for layout in role.layouts:
        if (layout.tp, layout.pp, layout.cp, layout.ep) not in known:
            words = ", ".join(f"{name}: {getattr(layout, name)}" for name in ("tp", "pp", "cp", "ep"))
            yield (
                f"layouts: {{{words}}} is not measured by any of its profiles: solve refuses it without "
                "--allow-prior"
            )


def unmeasured_classes(cluster: ClusterFile, measured: Collection[str]) -> list[str]:
    """List the GPU classes of a cluster that no profile was measured on: nothing can be planned there.

    `measured` are the classes of the profiles, and of those that can be borrowed.
    """
    return [
        f"no profile was measured on GPU class {name}; "
        + (wording.did_you_mean(name, measured) or f"measured: {wording.some_of(name, measured)}")
        for name in dict.fromkeys(node.gpu_class for node in cluster.nodes)
        if name not in measured
    ]
