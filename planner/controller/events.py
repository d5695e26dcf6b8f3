"""What happened since the last look: said by telemetry, or told by what came and went."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from libra_plan.models.topology import AbsentGpu, Cluster, GpuId
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import Event, EventKind

__all__ = ["ALL_URGENT", "happened", "quota_key", "still_lost", "urgent_tasks", "without"]

ALL_URGENT = frozenset({EventKind.PRIORITY_CHANGED, EventKind.QUOTA_CHANGED})
_FREES = frozenset(
    {EventKind.GPU_RETURNED, EventKind.NODE_RETURNED, EventKind.TASK_FINISHED, EventKind.TASK_PAUSED}
)


def quota_key(problem: Problem) -> str:
    """Give a short text that changes when quotas do."""
    said = repr([(quota.team, quota.gpus, quota.gpus_of_class) for quota in problem.quotas])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def happened(
    problem: Problem, state: LoopState, told: Iterable[Event], paused: frozenset[str]
) -> tuple[Event, ...]:
    """List events: those told, and those that the last look's tasks, GPUs and quotas give away.

    At the first look everything is new and nothing has happened, but for what telemetry tells.
    """
    found = list(told)
    if state.looks:
        found += _cluster_events(problem, state)
        found += _task_events(problem, state)
        if state.quotas != quota_key(problem):
            found.append(Event(EventKind.QUOTA_CHANGED))
        found += [Event(EventKind.TASK_RESUMED, task) for task in state.paused if task not in paused]
    runs = {held.task for held in problem.running}
    found += [Event(EventKind.TASK_PAUSED, task) for task in sorted(paused & runs)]
    return tuple(dict.fromkeys(found))


def _cluster_events(problem: Problem, state: LoopState) -> list[Event]:
    now, before = set(problem.cluster.gpus), set(state.gpus)
    why = {gpu.id: gpu.why for gpu in problem.cluster.absent}
    lost = [Event(EventKind.GPU_LOST, gpu=gpu, detail=why.get(gpu, "")) for gpu in sorted(before - now)]
    back = [Event(EventKind.GPU_RETURNED, gpu=gpu) for gpu in sorted(now - before)]
    return lost + back


def _task_events(problem: Problem, state: LoopState) -> list[Event]:
    now, before = {task.id: task.weight for task in problem.tasks}, dict(state.tasks)
    runs = {held.task for held in problem.running}
    found = [Event(EventKind.TASK_ARRIVED, task) for task in now if task not in before and task not in runs]
    found += [Event(EventKind.TASK_FINISHED, task) for task in sorted(before) if task not in now]
    changed = (task for task, weight in now.items() if before.get(task, weight) != weight)
    return found + [Event(EventKind.PRIORITY_CHANGED, task) for task in changed]


def urgent_tasks(problem: Problem, events: Iterable[Event]) -> frozenset[str]:
    """Name the tasks that are acted on at once: those that arrived, or whose wait may be over."""
    runs = {held.task for held in problem.running}
    waiting = {task.id for task in problem.tasks} - runs
    found: set[str] = set()
    for event in events:
        if event.kind in ALL_URGENT:
            found |= {task.id for task in problem.tasks}
        elif event.kind in _FREES:
            found |= waiting
        elif event.kind in (EventKind.TASK_ARRIVED, EventKind.TASK_RESUMED) and event.task:
            found.add(event.task)
    return frozenset(found)


def still_lost(problem: Problem, state: LoopState, told: Iterable[Event]) -> dict[GpuId, str]:
    """Give the GPUs that telemetry called lost, and why, until it or the inventory says otherwise.

    One that was seen off the bus does not come back because nobody mentions it any more; it does once
    the inventory left it out for a time, or an event says that it returned (A029).
    """
    lost = dict(state.lost)
    for event in told:
        nodes = [gpu for gpu in problem.cluster.gpus if event.node is not None and gpu.node == event.node]
        gpus = nodes if event.gpu is None else [event.gpu]
        if event.kind in (EventKind.GPU_LOST, EventKind.NODE_LOST):
            lost.update(dict.fromkeys(gpus, event.detail))
        elif event.kind in (EventKind.GPU_RETURNED, EventKind.NODE_RETURNED):
            for gpu in gpus:
                lost.pop(gpu, None)
    return {gpu: why for gpu, why in sorted(lost.items()) if gpu in problem.cluster.gpus}


def without(problem: Problem, lost: Mapping[GpuId, str]) -> Problem:
    """Take lost GPUs out of the cluster."""
    return replace(problem, cluster=_less(problem.cluster, lost)) if lost else problem


def _less(cluster: Cluster, gone: Mapping[GpuId, str]) -> Cluster:
    absent = tuple(
        AbsentGpu(gpu, cluster.gpus[gpu].gpu_class, f"lost {gone[gpu]}".strip()) for gpu in sorted(gone)
    )
    nodes = tuple(
        replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id not in gone)) for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes, absent=(*cluster.absent, *absent))
