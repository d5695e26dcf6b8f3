"""Whose a GPU is, as a manifest says it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libra_plan.planner.doctor.tracks import GpuTrack
from libra_plan.planner.launchers.manifest import Manifest

__all__ = ["Holder", "Placement", "placement_of"]


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A role of a task that holds a GPU."""

    task: str
    role: str


@dataclass(frozen=True)
class Placement:
    """Holders by UUID, where the manifest knows it, and by `node:index`; kinds and couplings."""

    by_uuid: dict[str, tuple[Holder, ...]]
    by_place: dict[str, tuple[Holder, ...]]
    kinds: dict[tuple[str, str], str]
    couplings: dict[str, str]

    def holders(self, gpu: GpuTrack) -> tuple[Holder, ...] | None:
        """Give who holds a GPU; empty: nobody; None: the manifest does not know the GPU."""
        if gpu.uuid in self.by_uuid:
            return self.by_uuid[gpu.uuid]
        return self.by_place.get(f"{gpu.node}:{gpu.index}")


def placement_of(manifest: Manifest) -> Placement:
    """Read whose the GPUs are; seats on one GPU are that GPU's."""
    holders: dict[tuple[str, int], set[Holder]] = {}
    for place, holder in _held(manifest):
        holders.setdefault(place, set()).add(holder)
    by_uuid: dict[str, tuple[Holder, ...]] = {}
    by_place: dict[str, tuple[Holder, ...]] = {}
    for node in manifest.spec.nodes:
        of: dict[int, set[Holder]] = {}
        uuids: dict[int, str | None] = {}
        for gpu in node.gpus:
            of.setdefault(gpu.card, set()).update(holders.get((node.id, gpu.index), ()))
            uuids[gpu.card] = gpu.uuid
        for card, known in of.items():
            by_place[f"{node.id}:{card}"] = tuple(sorted(known))
            uuid = uuids[card]
            if uuid is not None:
                by_uuid[uuid] = tuple(sorted(known))
    return Placement(
        by_uuid,
        by_place,
        {(task.id, role.id): role.kind for task in manifest.spec.tasks for role in task.roles},
        {task.id: task.coupling.kind for task in manifest.spec.tasks},
    )


def _held(manifest: Manifest) -> Iterator[tuple[tuple[str, int], Holder]]:
    for task in manifest.spec.tasks:
        for role in task.roles:
            for member in role.members:
                for index in member.gpus:
                    yield (member.node, index), Holder(task.id, role.id)
