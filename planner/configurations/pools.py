"""Pools: roles that take the same GPUs in turn, with the best option for each role.

A pool's blocks have the size of its largest replica. Per block size and number of blocks every combination
of options is kept that is not beaten in time and in host memory. It is exact: a dropped combination
is never better than a kept one that needs the same or fewer GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.rollout.streaming import Stream
from libra_plan.models.topology import GpuId
from libra_plan.planner.configurations.capacity import ClassCapacity, replicas_per_block
from libra_plan.planner.configurations.packing import are_nested, blocks_around
from libra_plan.planner.configurations.pareto import combinations, pareto_front
from libra_plan.planner.plan import MemoryMode, Pool, RoleChoice
from libra_plan.planner.problem import Role, StageOption

__all__ = ["Kind", "PoolOption", "PoolTable", "RoleOptions", "pool_options", "role_options"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Kind = tuple[str, int]
"""GPU class and size of blocks."""


@dataclass(frozen=True, slots=True)
class PoolOption:
    """A pool with its seconds per step (work and switches) and what it leaves behind.

    `static_mib` and `asleep_mib` are what its roles keep on the GPU while another phase works.
    """

    pool: Pool
    time_s: float
    switching_s: float
    static_mib: float
    asleep_mib: float

    @property
    def stream(self) -> Stream | None:
        """What its role is made of where that is a rollout that never drains, alone in its pool."""
        return self.pool.choices[0].option.stream

    def left_behind_mib(self, mode: MemoryMode) -> float:
        """Return what stays on each GPU while another phase has it, MiB."""
        return self.static_mib if mode is MemoryMode.RESIDENT else self.asleep_mib


# ---------------------------------------------------------------- options of a role

_WHOLE = ("gpu_class", "gpus_per_replica", "replicas", "gpus")
_FIGURES = (
    "time_s",
    "work_s",
    "latency_s",
    "peak",
    "static",
    "asleep",
    "host",
    "offloaded",
    "sleep_s",
    "wake_s",
)
_OPTION = np.dtype([*((name, np.int64) for name in _WHOLE), *((name, np.float64) for name in _FIGURES)])


@dataclass(frozen=True, slots=True)
class RoleOptions:
    """The options that a role may use on some GPU classes, and their figures, a row each.

    The figures are the number of the GPU class in `rooms`, seconds, MiB per GPU (`host` while asleep,
    `offloaded` always), and infinite seconds where a role cannot sleep.
    """

    role: Role
    rooms: Mapping[str, ClassCapacity]
    options: tuple[StageOption, ...]
    figures: NDArray[np.void]

    def splitting(self, rows: Ints) -> Floats:
        """Keep apart how pinned GPUs are split into replicas: other pools may leave room for one only."""
        sizes: Floats = self.figures["gpus_per_replica"][rows, None] * np.array([[1.0, -1.0]])
        return sizes if self.role.pinned_gpus else sizes[:, :0]


def role_options(role: Role, rooms: Mapping[str, ClassCapacity]) -> RoleOptions:
    """List the options of a role that its own limits and the GPUs' memory allow."""
    classes = {name: number for number, name in enumerate(rooms)}
    usable = tuple(each for each in role.options if each.gpu_class in rooms and _usable(role, each, rooms))
    figures = [
        (
            classes[option.gpu_class],
            option.layout.gpus_per_replica,
            option.replicas,
            option.gpus,
            option.time_s.value,
            option.stream.work_s if option.stream else 0.0,
            option.stream.latency_s if option.stream else 0.0,
            option.peak_mib,
            option.static_mib,
            option.asleep_mib,
            option.host_static_mib,
            option.offloaded_host_mib,
            inf if option.sleep_s is None else option.sleep_s,
            inf if option.wake_s is None else option.wake_s,
        )
        for option in usable
    ]
    return RoleOptions(role, rooms, usable, np.array(figures, dtype=_OPTION))


def _usable(role: Role, option: StageOption, rooms: Mapping[str, ClassCapacity]) -> bool:
    capacity, gpus = rooms[option.gpu_class], option.gpus
    pinned = len(role.pinned_gpus)
    return (
        role.min_gpus <= gpus <= capacity.gpus
        and (role.max_gpus is None or gpus <= role.max_gpus)
        and option.peak_mib <= capacity.memory_mib
        and all(capacity.rooms(size) >= replicas for size, replicas in option.sizes)
        and (
            not pinned or (gpus == pinned and not option.mix and _splits(role.pinned_gpus, option, capacity))
        )
    )


def _splits(pinned: frozenset[GpuId], option: StageOption, capacity: ClassCapacity) -> bool:
    """Whether pinned GPUs split into replicas that no node cuts, or that fill whole nodes."""
    size, full = option.layout.gpus_per_replica, capacity.full_node_gpus
    per_node = Counter(gpu.node for gpu in pinned)
    if size <= full:
        return all(number % size == 0 for number in per_node.values())
    per_span = Counter(capacity.span_of[node] for node in per_node)
    whole = all(number == full for number in per_node.values())
    return whole and all(nodes * full % size == 0 for nodes in per_span.values())


# ---------------------------------------------------------------- pools

_POOL = np.dtype(
    [
        *((name, np.int64) for name in ("kind", "blocks", "gpus")),
        *((name, np.float64) for name in ("time_s", "work_s", "latency_s", "switching_s")),
        *((name, np.float64) for name in ("peak", "static", "asleep", "host_per_gpu")),
        ("streams", np.bool_),
        ("sleeps", np.bool_),
    ]
)


@dataclass(frozen=True, slots=True)
class PoolTable:
    """Pools of the same roles, a row each.

    `rows` has the pool's kind (by number in `kinds`), blocks, GPUs, seconds and MiB per GPU.
    `picks[row, role]` is the number of the role's option and `role_s[row, role]` its seconds with its
    switches; `splitting` tells apart in how large replicas pinned GPUs are split.
    """

    members: tuple[RoleOptions, ...]
    kinds: tuple[Kind, ...]
    rows: NDArray[np.void]
    picks: Ints
    role_s: Floats
    splitting: Floats

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def cores_per_gpu(self) -> float:
        """Return the CPU cores of each GPU."""
        return sum(each.role.cpu_cores_per_gpu for each in self.members)

    def keep(self, rows: NDArray[np.intp]) -> PoolTable:
        """Keep some rows, in the order given."""
        return replace(
            self,
            rows=self.rows[rows],
            picks=self.picks[rows],
            role_s=self.role_s[rows],
            splitting=self.splitting[rows],
        )

    def of_class(self, gpu_class: str) -> PoolTable:
        """Keep the pools on one GPU class."""
        mine = np.array([name == gpu_class for name, _ in self.kinds], dtype=bool)
        return self.keep(np.flatnonzero(mine[self.rows["kind"]]))

    def option(self, number: int) -> PoolOption:
        """Build the pool of one row."""
        row = self.rows[number]
        gpu_class, block_gpus = self.kinds[row["kind"]]
        choices = tuple(
            RoleChoice(each.role.id, each.options[pick])
            for each, pick in zip(self.members, self.picks[number], strict=True)
        )
        pool = Pool(
            gpu_class,
            choices,
            block_gpus,
            int(row["blocks"]),
            MemoryMode.SLEEP if row["sleeps"] else MemoryMode.RESIDENT,
            float(row["peak"]),
            self.cores_per_gpu,
            float(row["host_per_gpu"]),
        )
        seconds = float(row["time_s"]), float(row["switching_s"])
        return PoolOption(pool, *seconds, float(row["static"]), float(row["asleep"]))

    def all_options(self) -> list[PoolOption]:
        """Build the pools of all rows."""
        return [self.option(number) for number in range(len(self))]


def pool_options(
    members: Sequence[RoleOptions],
    *,
    between_phases: MemoryMode | None = None,
    fill: bool = False,
    least_gpus: int = 0,
    apart: int = 0,
) -> PoolTable:
    """List the pools of these roles worth considering, by block size and number of blocks.

    With `fill` every role uses all GPUs of the pool. `between_phases` is given when the pool's GPUs
    serve another phase too: it says what every role does with its state meanwhile, alone in its
    pool or not. A task that must have `least_gpus` may want a larger pool for no other gain. The first
    `apart` roles are another task's than the rest: the time of each matters, not only their sum.
    """
    shared = len(members) > 1 or between_phases is not None
    kinds: list[Kind] = []
    chosen = []
    for number, capacity in enumerate(members[0].rooms.values()):
        usable = [_of_class(each, number, shared) for each in members]
        if not all(map(len, usable)):
            continue
        sizes = {
            size
            for each, rows in zip(members, usable, strict=True)
            for size in each.figures["gpus_per_replica"][rows].tolist()
        }
        nested = are_nested(tuple(sizes), capacity.full_node_gpus)
        for block_gpus in sorted(sizes):
            candidates = [
                _candidates(each, rows, block_gpus, capacity, nested, fill, least_gpus)
                for each, rows in zip(members, usable, strict=True)
            ]
            picked, blocks = combinations([each[1:] for each in candidates], same_needs=fill)
            picks = np.column_stack([each[0][own] for each, own in zip(candidates, picked.T, strict=True)])
            chosen.append((np.full(len(picks), len(kinds)), blocks, picks))
            kinds.append((capacity.gpu_class, block_gpus))
    if not chosen:
        chosen = [(np.zeros(0, dtype=np.int64),) * 2 + (np.zeros((0, len(members)), dtype=np.int64),)]
    kind, blocks, picks = (np.concatenate(each) for each in zip(*chosen, strict=True))
    table = _pools_made(members, tuple(kinds), kind, blocks, picks, between_phases)
    measures = _measures(table, between_phases, least_gpus, apart)
    kept = []
    for number in range(len(kinds)):
        own = np.flatnonzero(table.rows["kind"] == number)
        kept.append(np.sort(own[pareto_front(measures[own])]))
    return table.keep(np.concatenate(kept)) if kept else table


def _of_class(member: RoleOptions, gpu_class: int, shared: bool) -> Ints:
    """List the options on one GPU class; one that streams never pauses, so it shares no GPU."""
    mine = member.figures["gpu_class"] == gpu_class
    if shared:
        mine &= np.array([option.stream is None for option in member.options], dtype=bool)
    return np.flatnonzero(mine)


def _candidates(
    member: RoleOptions,
    rows: Ints,
    block_gpus: int,
    capacity: ClassCapacity,
    nested: bool,
    fill: bool,
    least_gpus: int,
) -> tuple[Ints, Ints, Floats]:
    """Return the options that blocks of one size hold, the blocks they need and what pools look at in them.

    Where sizes do not divide each other, only an option as large as the blocks replaces one that is:
    smaller blocks might hold the other roles worse.
    """
    full = capacity.full_node_gpus
    sizes, replicas = member.figures["gpus_per_replica"][rows], member.figures["replicas"][rows]
    each = np.array([replicas_per_block(block_gpus, size, full) for size in sizes.tolist()], dtype=np.int64)
    blocks = np.where((each > 0) & (sizes <= block_gpus), -(-replicas // np.maximum(each, 1)), 0)
    for at, row in enumerate(rows):
        if member.options[row].mix:
            blocks[at] = blocks_around(member.options[row].sizes, block_gpus, full) or 0
    fits = (blocks > 0) & (blocks <= capacity.rooms(block_gpus))
    if fill:
        fits &= member.figures["gpus"][rows] == blocks * block_gpus
    rows, blocks, sizes = rows[fits], blocks[fits], sizes[fits]
    smaller = (sizes < block_gpus) & (not nested)
    figures = [member.figures[name][rows] for name in _FIGURES]
    more = -np.minimum(blocks * block_gpus, least_gpus)
    return rows, blocks, np.column_stack([smaller, more, member.splitting(rows), *figures])


def _pools_made(
    members: Sequence[RoleOptions],
    kinds: tuple[Kind, ...],
    kind: Ints,
    blocks: Ints,
    picks: Ints,
    between_phases: MemoryMode | None,
) -> PoolTable:
    """Make each pool in every memory mode that fits: state resident, or put to host memory.

    A pool whose replicas are all smaller than its blocks is one of smaller blocks.
    """
    block_gpus = np.array([size for _, size in kinds], dtype=np.int64)[kind]
    memory = np.array([members[0].rooms[name].memory_mib for name, _ in kinds], dtype=np.float64)[kind]
    figures = [each.figures[own] for each, own in zip(members, picks.T, strict=True)]

    def of_roles(name: str) -> Floats:
        return np.column_stack([each[name] for each in figures])

    largest = of_roles("gpus_per_replica").max(axis=1) == block_gpus
    static, asleep, peak = of_roles("static"), of_roles("asleep"), of_roles("peak")
    switch_s, work_s = of_roles("sleep_s") + of_roles("wake_s"), of_roles("time_s")
    resident_peak = (peak + static.sum(axis=1)[:, None] - static).max(axis=1)
    asleep_peak = (peak + asleep.sum(axis=1)[:, None] - asleep).max(axis=1)
    may_stay = between_phases is not MemoryMode.SLEEP
    may_sleep = between_phases is MemoryMode.SLEEP or (between_phases is None and len(members) > 1)
    resident = np.flatnonzero(largest & (resident_peak <= memory) & may_stay)
    sleeping = largest & (asleep_peak <= memory) & np.isfinite(switch_s).all(axis=1) & may_sleep
    order = np.concatenate((resident, np.flatnonzero(sleeping)))
    sleeps = np.arange(len(order)) >= len(resident)

    found = np.zeros(len(order), dtype=_POOL)
    found["kind"], found["blocks"], found["sleeps"] = kind[order], blocks[order], sleeps
    found["gpus"] = blocks[order] * block_gpus[order]
    switches = np.where(sleeps[:, None], switch_s[order], 0.0)
    found["switching_s"] = switches.sum(axis=1)
    found["time_s"] = work_s.sum(axis=1)[order] + found["switching_s"]
    found["work_s"], found["latency_s"] = figures[0]["work_s"][order], figures[0]["latency_s"][order]
    found["streams"] = np.array([each.stream is not None for each in members[0].options], dtype=bool)[
        picks[order, 0]
    ]
    found["peak"] = np.where(sleeps, asleep_peak[order], resident_peak[order])
    found["static"], found["asleep"] = static.sum(axis=1)[order], asleep.sum(axis=1)[order]
    host = sum(each.role.host_memory_mib_per_gpu for each in members) + of_roles("offloaded").sum(axis=1)
    found["host_per_gpu"] = host[order] + np.where(sleeps, of_roles("host").sum(axis=1)[order], 0.0)
    splitting = [each.splitting(own) for each, own in zip(members, picks[order].T, strict=True)]
    role_s = work_s[order] + switches
    return PoolTable(tuple(members), kinds, found, picks[order], role_s, np.column_stack(splitting))


def _measures(table: PoolTable, between_phases: MemoryMode | None, least_gpus: int, apart: int) -> Floats:
    """Measure what later steps look at: memory only when phases share the GPUs."""
    rows = table.rows
    names = ["work_s", "latency_s", "host_per_gpu"]
    if between_phases is not None:
        names += ["peak", "static" if between_phases is MemoryMode.RESIDENT else "asleep"]
    times = [rows["time_s"]]
    if apart:
        times = [table.role_s[:, :apart].sum(axis=1), table.role_s[:, apart:].sum(axis=1)]
    more = -np.minimum(rows["gpus"], least_gpus)
    return np.column_stack([rows["blocks"], more, *times, *(rows[name] for name in names), table.splitting])
