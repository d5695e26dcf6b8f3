"""Describe one running task: its roles with their ranks, and how those ranks meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from types import MappingProxyType

import msgspec

from libra_plan.errors import ManifestError
from libra_plan.models.quantities import Estimate
from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.launchers import manifest as m
from libra_plan.planner.plan import MemoryMode, PlacedRole, Pool, RunningTask
from libra_plan.planner.problem import Problem, Role
from libra_plan.profiles.schema import LifecycleSpec, TaskSpec

__all__ = ["PortBook", "describe_task", "runs_on_as", "with_rendezvous"]

_NO_PORT = 0


def describe_task(
    problem: Problem,
    running: RunningTask,
    spec: TaskSpec | None,
    joint_groups: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> m.TaskEntry:
    """Describe a task without ports, rendezvous and generation, which `with_rendezvous` adds.

    `joint_groups` names the share groups of (task, role) that other tasks' roles are in, too.
    """
    task = problem.task_of[running.task]
    placed = {role.role: role for role in running.roles}
    jointly = {role: group for (name, role), group in joint_groups.items() if name == task.id}
    groups = _share_groups(running) | jointly
    commands = {role.id: role.command for role in spec.roles} if spec is not None else {}
    lifecycle = spec.lifecycle if spec is not None else LifecycleSpec()
    roles = []
    for role in task.roles:
        entry = _without_gpus(running, role, commands.get(role.id, ()))
        if role.id in placed:
            entry = _with_gpus(entry, problem.cluster, running, role, placed[role.id])
        roles.append(msgspec.structs.replace(entry, share_group=groups.get(role.id)))
    return m.TaskEntry(
        id=task.id,
        generation=0,
        coupling=m.CouplingEntry(
            kind=task.coupling.kind.value,
            staleness_steps=task.coupling.staleness,
            groups=task.coupling.groups,
            rollouts="batches" if task.coupling.batches else msgspec.UNSET,
        ),
        roles=tuple(roles),
        lifecycle=m.Lifecycle(
            stop_signal=lifecycle.stop_signal,
            grace_s=lifecycle.grace_s,
            checkpoint_dir=lifecycle.checkpoint_dir,
            checkpoint_sentinel=lifecycle.checkpoint_sentinel or msgspec.UNSET,
            reshardable=lifecycle.reshardable or msgspec.UNSET,
        ),
        step_time=_predicted(running.configuration.step_time_s),
        normalised=running.normalised,
    )


def _without_gpus(running: RunningTask, role: Role, command: tuple[str, ...]) -> m.RoleEntry:
    """Write a role with its CPU workers; one that needs GPUs and has none is found by the checks."""
    share = 1.0 / max(role.cpu_workers, 1)
    return m.RoleEntry(
        id=role.id,
        kind=role.kind,
        layout=None,
        replicas=(),
        members=(),
        phase=None,
        pool=None,
        share_group=None,
        memory_mode=None,
        rendezvous=None,
        command=command,
        cpu_cores_per_gpu=role.cpu_cores_per_gpu,
        host_memory_mib_per_gpu=role.host_memory_mib_per_gpu,
        cpu=tuple(
            m.CpuShareEntry(
                node=one.node,
                workers=one.workers,
                cpu_cores=role.cpu_cores * one.workers * share,
                host_memory_mib=role.host_memory_mib * one.workers * share,
            )
            for one in running.cpu
            if one.role == role.id
        ),
        stage_time=None,
        peak_memory=None,
    )


def _with_gpus(
    entry: m.RoleEntry, cluster: Cluster, running: RunningTask, role: Role, placed: PlacedRole
) -> m.RoleEntry:
    phase, number, pool = _pool_of(running, role.id)
    replicas = _in_rank_order(cluster, placed.replicas)
    layout, option = placed.choice.layout, placed.choice.option
    kinds = {frozenset(gpus): kind for gpus, kind in zip(placed.replicas, option.mix, strict=False)}
    mix = tuple(
        m.RangedEntry(
            tp=kind.layout.tp,
            pp=kind.layout.pp,
            cp=kind.layout.cp,
            ep=kind.layout.ep,
            start=kind.start,
            stop=kind.stop,
            stride=kind.stride,
        )
        for kind in (kinds[frozenset(replica)] for replica in replicas if option.mix)
    )
    asleep = pool.memory_mode is MemoryMode.SLEEP
    on_host_mib = option.offloaded_host_mib + (option.host_static_mib if asleep else 0.0)
    degrees = m.DegreesEntry(tp=layout.tp, pp=layout.pp, cp=layout.cp, ep=layout.ep, dp=len(replicas))
    ranks = groupby((gpu for replica in replicas for gpu in replica), key=lambda gpu: gpu.node)
    return msgspec.structs.replace(
        entry,
        layout=None if option.mix else degrees,
        mix=mix or msgspec.UNSET,
        replicas=tuple(tuple(str(gpu) for gpu in replica) for replica in replicas),
        members=tuple(
            m.Member(node=node, gpus=tuple(gpu.index for gpu in gpus), port=_NO_PORT) for node, gpus in ranks
        ),
        phase=phase,
        pool=number,
        memory_mode=pool.memory_mode.value,
        host_memory_mib_per_gpu=role.host_memory_mib_per_gpu + on_host_mib,
        cpu=(),
        stage_time=_predicted(option.time_s),
        peak_memory=m.PredictedValue(
            value=pool.peak_mib, low=None, high=pool.peak_mib, unit="MiB", origin=None
        ),
    )


def _pool_of(running: RunningTask, role: str) -> tuple[int, int, Pool]:
    for phase_number, phase in enumerate(running.configuration.phases):
        for number, pool in enumerate(phase.pools):
            if any(choice.role == role for choice in pool.choices):
                return phase_number, number, pool
    raise ManifestError(
        f"role {running.task}/{role} has GPUs but stands in no pool of its configuration",
        way_out="check the plan with `libra-plan validate` before writing a manifest",
    )


def _in_rank_order(cluster: Cluster, replicas: Iterable[tuple[GpuId, ...]]) -> tuple[tuple[GpuId, ...], ...]:
    """Order GPUs by (node, index), nodes as the cluster lists them, and replicas by their first GPU.

    Launchers number ranks node by node, so any other order would not survive the launch.
    """
    position = {node.id: place for place, node in enumerate(cluster.nodes)}

    def key(gpu: GpuId) -> tuple[int, int]:
        return position[gpu.node], gpu.index

    ordered = [tuple(sorted(replica, key=key)) for replica in replicas]
    return tuple(sorted(ordered, key=lambda replica: [key(gpu) for gpu in replica]))


def _share_groups(running: RunningTask) -> dict[str, str]:
    """Name the sets of roles that meet on a GPU, directly or through a third role."""
    groups: list[tuple[list[str], set[GpuId]]] = []
    for role in running.roles:
        names, gpus = [role.role], set(role.gpus)
        for group in [one for one in groups if one[1] & gpus]:
            groups.remove(group)
            names, gpus = group[0] + names, group[1] | gpus
        groups.append((names, gpus))
    shared = [names for names, _ in groups if len(names) > 1]
    return {role: f"share{number}" for number, names in enumerate(shared) for role in names}


def _predicted(estimate: Estimate) -> m.PredictedValue:
    return m.PredictedValue(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        unit=estimate.unit,
        origin=estimate.origin.value,
    )


def runs_on_as(
    old: m.TaskEntry, old_nodes: tuple[m.NodeEntry, ...], new: m.TaskEntry, new_nodes: tuple[m.NodeEntry, ...]
) -> bool:
    """Whether the processes of `old` are what `new` asks for, on the same cards.

    Predictions, ports and generation do not count: none needs another start. Lifecycle does,
    since processes are started with their grace, signals and checkpoint folder.
    """
    before, after = _cards(old.gpus, old_nodes), _cards(new.gpus, new_nodes)
    return _lasting(old) == _lasting(new) and all(
        known == now or None in (known, now)
        for gpu in before.keys() & after.keys()
        for known, now in zip(before[gpu], after[gpu], strict=True)
    )


def _lasting(task: m.TaskEntry) -> object:
    """Return what a task's processes are started with."""
    roles = tuple(
        msgspec.structs.replace(
            role,
            members=tuple(msgspec.structs.replace(member, port=_NO_PORT) for member in role.members),
            rendezvous=None,
            stage_time=None,
            peak_memory=None,
        )
        for role in task.roles
    )
    return task.coupling, task.lifecycle, roles


def _cards(gpus: frozenset[str], nodes: tuple[m.NodeEntry, ...]) -> dict[str, tuple[str | None, str | None]]:
    """Map GPUs to address and UUID, where known."""
    return {
        name: (node.address, gpu.uuid)
        for node in nodes
        for gpu in node.gpus
        if (name := f"{node.id}:{gpu.index}") in gpus
    }


class PortBook:
    """Assigns ports: the lowest free one of a node that no process of the parent may still hold."""

    def __init__(self, nodes: tuple[m.NodeEntry, ...], parent: m.Manifest | None) -> None:
        self._ranges = {node.id: node.port_range for node in nodes}
        self._next = {node.id: node.port_range[0] for node in nodes}
        self._used: dict[str, set[int]] = {}
        for task in () if parent is None else parent.spec.tasks:
            for role in task.roles:
                for member in role.members:
                    self._used.setdefault(member.node, set()).add(member.port)

    def take(self, node: str, purpose: str) -> int:
        """Take a port on a node for a purpose that the error names when the range is exhausted."""
        first, last = self._ranges[node]
        used = self._used.setdefault(node, set())
        port = self._next[node]
        while port in used:
            port += 1
        if port > last:
            raise ManifestError(
                f"no port is left on node {node} for {purpose}",
                got=f"{len(used)} ports taken, those of the parent manifest counted",
                allowed=f"{first}-{last}",
                way_out=f"widen port_first-port_last of node {node} in cluster.yaml",
            )
        used.add(port)
        self._next[node] = port + 1
        return port


def with_rendezvous(
    task: m.TaskEntry, generation: int, ports: PortBook, kept: m.TaskEntry | None
) -> m.TaskEntry:
    """Add ports and rendezvous to every role: those of `kept` where its processes run on."""
    if kept is not None:
        generation = kept.generation
        roles = [
            msgspec.structs.replace(role, members=old.members, rendezvous=old.rendezvous)
            for role, old in zip(task.roles, kept.roles, strict=True)
        ]
    else:
        roles = [_meeting(task.id, role, generation, ports) for role in task.roles]
    return msgspec.structs.replace(task, generation=generation, roles=tuple(roles))


def _meeting(task: str, role: m.RoleEntry, generation: int, ports: PortBook) -> m.RoleEntry:
    if not role.members:
        return role
    members = tuple(
        msgspec.structs.replace(member, port=ports.take(member.node, f"{task}/{role.id}"))
        for member in role.members
    )
    first = members[0]
    meeting = m.Rendezvous(node=first.node, port=first.port, id=f"{task}-{role.id}-g{generation}")
    return msgspec.structs.replace(role, members=members, rendezvous=meeting)
