"""Everything the finders look at, frozen: tracks on one axis, whose the GPUs are, and moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from libra_plan.planner.doctor.finding import Need
from libra_plan.planner.doctor.fold import SampleFold
from libra_plan.planner.doctor.placement import Placement
from libra_plan.planner.doctor.tracks import GpuTrack, HostTrack, MovedTask, RoleTrack
from libra_plan.planner.doctor.work import Pace, WorkFold

__all__ = ["TRAINING", "Evidence", "Group", "gather"]

TRAINING = ("actor_train", "critic_train", "reward_train")


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs that the same roles hold; without a manifest, those of a node (`task` None, no roles)."""

    name: str
    task: str | None
    roles: tuple[str, ...]
    gpus: tuple[GpuTrack, ...]


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
        """Give the GPUs by who holds them; GPUs that the manifest does not know are by node."""
        found: dict[Group, list[GpuTrack]] = {}
        for gpu in self.gpus:
            found.setdefault(self._owners(gpu), []).append(gpu)
        return tuple(Group(each.name, each.task, each.roles, tuple(gpus)) for each, gpus in found.items())

    def _owners(self, gpu: GpuTrack) -> Group:
        holders = None if self.placement is None else self.placement.holders(gpu)
        if holders is None:
            return Group(gpu.node, None, (), ())
        if not holders:
            return Group("GPUs of no task", None, (), ())
        tasks = sorted({holder.task for holder in holders})
        roles = tuple(holder.role for holder in holders)
        name = " and ".join(
            f"{task}/{'+'.join(one.role for one in holders if one.task == task)}" for task in tasks
        )
        return Group(name, tasks[0] if len(tasks) == 1 else None, roles, ())

    def gpus_of(self, task: str, role: str) -> tuple[GpuTrack, ...]:
        """Give a role's GPUs; without a manifest all of them, if all that is counted is one task."""
        if self.placement is None:
            return self.gpus if len({each.task for each in self.roles}) == 1 else ()
        return tuple(
            gpu
            for gpu in self.gpus
            if any((one.task, one.role) == (task, role) for one in self.placement.holders(gpu) or ())
        )

    def of_kind(self, task: str, *kinds: str) -> tuple[RoleTrack, ...]:
        """Give a task's roles of these kinds."""
        return tuple(each for each in self.roles if each.task == task and each.kind in kinds)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Give the tasks that were counted."""
        return tuple(dict.fromkeys(each.task for each in self.roles))

    @cached_property
    def span_s(self) -> tuple[float, float] | None:
        """Give where samples begin and end on the axis; counts where there are no samples."""
        return _span([*self.gpus, *self.hosts]) or _span(self.roles)

    @cached_property
    def has(self) -> frozenset[Need]:
        """Tell what was recorded."""
        kinds = {each.kind for each in self.roles}
        own, work = _span([*self.gpus]), _span(self.roles)
        there = {
            Need.GPUS: any(gpu.known_s.sum() > 0 for gpu in self.gpus),
            Need.MEMORY: any(not np.isnan(gpu.used_mib - gpu.limit_mib).all() for gpu in self.gpus),
            Need.HOSTS: any(_told(host) for host in self.hosts),
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


def _told(host: HostTrack) -> bool:
    return (
        bool(host.cpu_known_s.sum() > 0) or not np.isnan(host.memory_free_mib - host.memory_total_mib).all()
    )


def _span(tracks: Sequence[GpuTrack | HostTrack | RoleTrack]) -> tuple[float, float] | None:
    begun = [float(track.start_s[0]) for track in tracks if len(track.start_s)]
    ended = [float(track.start_s[-1]) for track in tracks if len(track.start_s)]
    return (min(begun), max(ended)) if begun else None


def gather(
    samples: SampleFold,
    work: WorkFold,
    placement: Placement | None = None,
    moves: Sequence[MovedTask] | None = None,
) -> Evidence:
    """Close the folds and freeze what they hold."""
    gpus, hosts = samples.tracks()
    return Evidence(
        gpus,
        hosts,
        work.tracks({} if placement is None else placement.kinds),
        tuple(sorted(work.paces().items())),
        placement,
        None if moves is None else tuple(moves),
    )
