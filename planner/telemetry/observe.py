"""Derives observations from telemetry records, for the command, the re-plan loop and the simulator alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean

import msgspec

from libra_plan.models.topology import Cluster
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import (
    CheckpointAge,
    Event,
    EventKind,
    Observations,
    ObservedTime,
    RoleLoad,
    TaskProgress,
)
from libra_plan.planner.telemetry.sample import GpuState, NodeSample
from libra_plan.planner.telemetry.work_windows import WorkWindow

__all__ = ["PRESSURE", "RECENT_S", "observe"]

RECENT_S = 300.0
"""A file of observations older than this counts beside counters for its losses and returns only."""
PRESSURE = "pressure"
"""A record's queue of this name is the queue pressure of its role, from 0 (idle) to 1 (full)."""
_FATAL_XIDS = frozenset({79, 95})  # off the bus; memory error that could not be contained
_LASTING = frozenset(
    {EventKind.GPU_LOST, EventKind.GPU_RETURNED, EventKind.NODE_LOST, EventKind.NODE_RETURNED}
)

Key = tuple[str, str]
"""Task and role."""


def observe(
    records: Iterable[WorkWindow],
    problem: Problem,
    now_s: float,
    *,
    samples: Sequence[NodeSample] = (),
    placed_s: Mapping[str, float] | None = None,
    generations: Mapping[str, int] | None = None,
    checkpoints: Iterable[CheckpointAge] = (),
    stated: Observations | None = None,
    notes: Callable[[str], None] = lambda line: None,
) -> Observations | None:
    """Derive from records what was observed of the tasks that run.

    Parameters
    ----------
    records
        What ranks of roles got done lately.
    problem
        The tasks, their placements and the cluster.
    now_s
        The time now, seconds since 1970.
    samples
        Readings of the GPUs.
    placed_s
        When each task was placed as it is, seconds since 1970. A record that begins before its task
        was placed tells of another placement and does not count. A task that is missing has always
        been placed as it is.
    generations
        The plan generation in which each task was started; records of an earlier one do not count.
    checkpoints
        How old each task's newest checkpoint is.
    stated
        Observations from a file. They count before those that follow from records.
    notes
        Called with each line that the user should read.

    Returns
    -------
    Observations or None
        None when no source has anything. `until_s` is the end of the records or that of the file,
        the older of the two; samples do not count for it, because they tell of GPUs and not of work.
    """
    started, since = generations or {}, placed_s or {}
    records = [r for r in records if r.generation is None or r.generation >= started.get(r.task, 0)]
    if stated is None and not records and not samples:
        return None
    ends = [record.utc_s for record in records if record.utc_s is not None]
    untils = [max(ends)] if ends else []
    if stated is not None and records and stated.until_s < now_s - RECENT_S:
        notes(f"the file of observations is {now_s - stated.until_s:.0f} s old, only its losses count")
        lasting = tuple(event for event in stated.events if event.kind in _LASTING)
        stated = Observations(stated.until_s, events=lasting)
    elif stated is not None:
        untils.append(stated.until_s)
    roles = _by_role(records, problem)
    current = {key: [r for r in group if _is_since(r, since.get(key[0]))] for key, group in roles.items()}
    found = Observations(
        min(untils, default=0.0),
        seen=tuple(_times(current)),
        loads=tuple(_loads(records, _busy(samples, problem))),
        progress=tuple(_progress(current)),
        checkpoints=tuple(checkpoints),
        events=tuple(_lost_gpus(samples, problem.cluster)),
    )
    return found if stated is None else _joined(found, stated)


def _by_role(records: Iterable[WorkWindow], problem: Problem) -> dict[Key, list[WorkWindow]]:
    """Group records by role, those of its lowest data-parallel rank only: ranks take steps together."""
    owners: dict[str, set[str]] = {}
    for task in problem.tasks:
        for role in task.roles:
            owners.setdefault(role.id, set()).add(task.id)
    found: dict[Key, list[WorkWindow]] = {}
    for record in records:
        known = [record.task] if record.task else sorted(owners.get(record.role, set()))
        if len(known) == 1:  # without a task, the role's name must be that of one task only
            found.setdefault((known[0], record.role), []).append(record)
    lowest = {key: min(record.dp_rank for record in group) for key, group in found.items()}
    return {key: [r for r in group if r.dp_rank == lowest[key]] for key, group in sorted(found.items())}


def _is_since(record: WorkWindow, placed_s: float | None) -> bool:
    """Whether a record began after its task was placed; one without a date counts."""
    return placed_s is None or record.utc_s is None or record.utc_s - record.length_s >= placed_s


def _times(roles: Mapping[Key, Iterable[WorkWindow]]) -> Iterator[ObservedTime]:
    """Average the working seconds per step of each role whose records count whole steps.

    Records that state batch and length count passes of the engine; `profile drift` compares those.
    """
    for (task, role), records in roles.items():
        whole = [r for r in records if r.steps and not (r.batch_sequences and r.seq_len_tokens)]
        steps = sum(record.steps or 0.0 for record in whole)
        seconds = sum(record.working_s for record in whole)
        if steps and seconds > 0:
            yield ObservedTime(task, role, seconds / steps)


def _progress(roles: Mapping[Key, Iterable[WorkWindow]]) -> Iterator[TaskProgress]:
    """Count each task's steps since it was placed: those of the role that has counted most."""
    steps: dict[str, float] = {}
    for (task, _), records in roles.items():
        done = sum(record.steps or 0.0 for record in records)
        steps[task] = max(steps.get(task, 0.0), done)
    yield from (TaskProgress(task, done) for task, done in sorted(steps.items()))


def _loads(records: Iterable[WorkWindow], busy: Mapping[Key, tuple[float, ...]]) -> Iterator[RoleLoad]:
    """Report the last queue pressure, the stalest sample and the busy share of the GPUs of each role."""
    stalest: dict[Key, float] = {}
    pressure: dict[Key, float] = {}
    for record in records:
        key = (record.task, record.role)
        if record.task and record.stalest is not None:
            stalest[key] = max(stalest.get(key, 0.0), record.stalest)
        if record.task and PRESSURE in record.queues:
            pressure[key] = min(1.0, record.queues[PRESSURE])
    for key in sorted({*stalest, *pressure, *busy}):
        yield RoleLoad(*key, pressure.get(key), stalest.get(key), busy.get(key, ()))


def _busy(samples: Sequence[NodeSample], problem: Problem) -> dict[Key, tuple[float, ...]]:
    """Average the utilization (0 to 1) of each GPU of the roles that have their GPUs to themselves."""
    seen: dict[str, list[float]] = {}
    for sample in samples:
        for gpu in sample.gpus:
            if gpu.uuid and gpu.utilization_percent is not None:
                seen.setdefault(gpu.uuid, []).append(gpu.utilization_percent / 100.0)
    found: dict[Key, tuple[float, ...]] = {}
    for task in problem.running:
        groups = [role.share_group for role in task.roles]
        for role in task.roles:
            known = (problem.cluster.gpus.get(gpu) for gpus in role.replicas for gpu in gpus)
            uuids = [gpu.uuid for gpu in known if gpu is not None and gpu.uuid in seen]
            if uuids and groups.count(role.share_group) == 1:
                found[task.task, role.role] = tuple(fmean(seen[uuid]) for uuid in uuids if uuid)
    return found


def _lost_gpus(samples: Iterable[NodeSample], cluster: Cluster) -> Iterator[Event]:
    """Report GPUs that are off the bus, or had an error that no process survives."""
    by_uuid = {gpu.uuid: gpu.id for gpu in cluster.gpus.values() if gpu.uuid}
    reasons: dict[str, str] = {}
    for sample in samples:
        for gpu in sample.gpus:
            fatal = _FATAL_XIDS & set(gpu.xids or ())
            if gpu.uuid and (gpu.state is GpuState.LOST or fatal):
                reasons[gpu.uuid] = f"XID {min(fatal)}" if fatal else reasons.get(gpu.uuid, "off the bus")
    for uuid, detail in sorted(reasons.items()):
        if uuid in by_uuid:
            yield Event(EventKind.GPU_LOST, gpu=by_uuid[uuid], detail=detail)


def _joined(found: Observations, stated: Observations) -> Observations:
    """Join observations; what was stated of something replaces what was found of it."""
    loads = {(each.task, each.role): each for each in (*found.loads, *stated.loads)}
    progress = {each.task: each for each in (*found.progress, *stated.progress)}
    checkpoints = {each.task: each for each in (*found.checkpoints, *stated.checkpoints)}
    return msgspec.structs.replace(
        found,
        seen=(*found.seen, *stated.seen),
        loads=tuple(loads.values()),
        progress=tuple(progress.values()),
        checkpoints=tuple(checkpoints.values()),
        batch_steps=stated.batch_steps,
        events=(*found.events, *stated.events),
    )
