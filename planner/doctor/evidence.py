"""The evidence for the finders, frozen: tracks on one axis, the roles on each GPU, and moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from libra_plan.planner.doctor.finding import Need
from libra_plan.planner.doctor.fold import SampleFold
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import (
    Floats,
    GpuTrack,
    HostTrack,
    MovedTask,
    RoleTrack,
    Spell,
    weighted_mean,
)
from libra_plan.planner.doctor.work import Pace, WorkFold
from libra_plan.planner.launchers.manifest import Manifest

__all__ = ["TRAINING", "Evidence", "Group", "Holder", "Placement", "gather", "placement_of"]

TRAINING = ("actor_train", "critic_train", "reward_train")


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
        """Return who holds a GPU; empty: nobody; None: the manifest does not know the GPU."""
        if gpu.uuid in self.by_uuid:
            return self.by_uuid[gpu.uuid]
        return self.by_place.get(f"{gpu.node}:{gpu.index}")


def placement_of(manifest: Manifest) -> Placement:
    """Return the roles on each GPU of a manifest; seats on a GPU belong to that GPU."""
    tasks = manifest.spec.tasks
    holders: dict[tuple[str, int], set[Holder]] = {}
    for task in tasks:
        for role in task.roles:
            for place in ((member.node, index) for member in role.members for index in member.gpus):
                holders.setdefault(place, set()).add(Holder(task.id, role.id))
    by_uuid: dict[str, tuple[Holder, ...]] = {}
    by_place: dict[str, tuple[Holder, ...]] = {}
    for node in manifest.spec.nodes:
        cards: dict[int, set[Holder]] = {}
        for gpu in node.gpus:
            cards.setdefault(gpu.card, set()).update(holders.get((node.id, gpu.index), ()))
        by_place |= {f"{node.id}:{card}": tuple(sorted(known)) for card, known in cards.items()}
        by_uuid |= {gpu.uuid: by_place[f"{node.id}:{gpu.card}"] for gpu in node.gpus if gpu.uuid is not None}
    kinds = {(task.id, role.id): role.kind for task in tasks for role in task.roles}
    return Placement(by_uuid, by_place, kinds, {task.id: task.coupling.kind for task in tasks})


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs that the same roles hold; without a manifest, those of a node (`task` None, no roles)."""

    name: str
    task: str | None
    roles: tuple[str, ...]
    gpus: tuple[GpuTrack, ...]

    def total(self, column: str) -> float:
        """Add up a column of all GPUs."""
        return sum(float(getattr(gpu, column).sum()) for gpu in self.gpus)

    def joined(self, column: str) -> Floats:
        """Return a column of all GPUs, one after the other."""
        return np.concatenate([getattr(gpu, column) for gpu in self.gpus])

    def mean(self, column: str, weight: str, since_s: float) -> float | None:
        """Average a column over the windows of all GPUs from a moment on; None where unknown."""
        chosen = self.joined("start_s") >= since_s
        return weighted_mean(self.joined(column)[chosen], self.joined(weight)[chosen])

    def span(self, limits: Thresholds) -> Spell:
        """Return the time in which its GPUs were seen."""
        starts = self.joined("start_s")
        return Spell(float(starts.min()), float(starts.max()) + limits.window_s)

    def whose(self, gpus: Sequence[GpuTrack] | None = None) -> dict[str, Any]:
        """Return the fields of a finding that name the owner; `gpus` are the ones concerned, if not all."""
        names = tuple(gpu.name for gpu in (self.gpus if gpus is None else gpus))
        return {"task": self.task, "role": "+".join(self.roles) or None, "gpus": names}


@dataclass(frozen=True)
class Evidence:
    """What was recorded. `moves` None: nobody recorded any."""

    gpus: tuple[GpuTrack, ...] = ()
    hosts: tuple[HostTrack, ...] = ()
    roles: tuple[RoleTrack, ...] = ()
    paces: tuple[tuple[tuple[str, str], Pace], ...] = ()
    placement: Placement | None = None
    moves: tuple[MovedTask, ...] | None = None

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The GPUs by who holds them; GPUs that the manifest does not know are by node."""
        found: dict[tuple[str, str | None, tuple[str, ...]], list[GpuTrack]] = {}
        for gpu in self.gpus:
            found.setdefault(self._owner(gpu), []).append(gpu)
        return tuple(Group(*owner, tuple(gpus)) for owner, gpus in found.items())

    def _owner(self, gpu: GpuTrack) -> tuple[str, str | None, tuple[str, ...]]:
        """Return name, task and roles of a GPU's group."""
        holders = None if self.placement is None else self.placement.holders(gpu)
        if holders is None:
            return gpu.node, None, ()
        if not holders:
            return "GPUs of no task", None, ()
        tasks = sorted({holder.task for holder in holders})
        name = " and ".join(
            f"{task}/{'+'.join(one.role for one in holders if one.task == task)}" for task in tasks
        )
        return name, tasks[0] if len(tasks) == 1 else None, tuple(holder.role for holder in holders)

    def gpus_of(self, task: str, role: str) -> tuple[GpuTrack, ...]:
        """Return a role's GPUs; without a manifest all of them, if only one task is counted."""
        if self.placement is None:
            return self.gpus if len(self.tasks) == 1 else ()
        holder = Holder(task, role)
        return tuple(gpu for gpu in self.gpus if holder in (self.placement.holders(gpu) or ()))

    def of_kind(self, task: str, *kinds: str) -> tuple[RoleTrack, ...]:
        """Return a task's roles of these kinds."""
        return tuple(each for each in self.roles if each.task == task and each.kind in kinds)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that were counted."""
        return tuple(dict.fromkeys(each.task for each in self.roles))

    @cached_property
    def span_s(self) -> tuple[float, float] | None:
        """Where samples begin and end on the axis; counts where there are no samples."""
        return _span([*self.gpus, *self.hosts]) or _span(self.roles)

    @cached_property
    def has(self) -> frozenset[Need]:
        """What was recorded."""
        kinds = {each.kind for each in self.roles}
        own, work = _span(self.gpus), _span(self.roles)
        there = {
            Need.GPUS: any(gpu.known_s.sum() > 0 for gpu in self.gpus),
            Need.MEMORY: any(not np.isnan(gpu.used_mib - gpu.limit_mib).all() for gpu in self.gpus),
            Need.HOSTS: any(
                host.cpu_known_s.sum() > 0 or not np.isnan(host.memory_free_mib - host.memory_total_mib).all()
                for host in self.hosts
            ),
            Need.TRAFFIC: any(gpu.traffic_known_s.sum() > 0 for gpu in self.gpus),
            Need.ROLES: bool(self.roles),
            Need.TRAINING: "rollout" in kinds and bool(kinds.intersection(TRAINING)),
            Need.WAITING: any(each.waited_share is not None for each in self.roles),
            Need.QUEUES: any(each.queues for each in self.roles),
            Need.JOINED: own is not None
            and work is not None
            and max(own[0], work[0]) < min(own[1], work[1])
            and any(self.gpus_of(each.task, each.role) for each in self.roles),
            Need.PLACEMENT: any(each.roles for each in self.groups),
            Need.MOVES: self.moves is not None,
        }
        return frozenset(need for need, known in there.items() if known)


def _span(tracks: Sequence[GpuTrack | HostTrack | RoleTrack]) -> tuple[float, float] | None:
    starts = [track.start_s for track in tracks if len(track.start_s)]
    if not starts:
        return None
    return min(float(each[0]) for each in starts), max(float(each[-1]) for each in starts)


def gather(
    samples: SampleFold,
    work: WorkFold,
    placement: Placement | None = None,
    moves: Sequence[MovedTask] | None = None,
) -> Evidence:
    """Finish the folds and freeze the result."""
    gpus, hosts = samples.tracks()
    return Evidence(
        gpus,
        hosts,
        work.tracks({} if placement is None else placement.kinds),
        tuple(sorted(work.paces().items())),
        placement,
        None if moves is None else tuple(moves),
    )
