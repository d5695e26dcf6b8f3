"""Events since the last look: those that telemetry reports, and tasks and GPUs that came or left."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from libra_plan.models.topology import AbsentGpu, GpuId
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import Event, EventKind

__all__ = ["events_since", "lost_gpus", "quota_key", "told", "urgent_tasks", "without_gpus"]

_FOR_ALL = frozenset({EventKind.PRIORITY_CHANGED, EventKind.QUOTA_CHANGED})
_FREES_GPUS = frozenset(
    {EventKind.GPU_RETURNED, EventKind.NODE_RETURNED, EventKind.TASK_FINISHED, EventKind.TASK_PAUSED}
)


def quota_key(problem: Problem) -> str:
    """Return a short text that changes when quotas do."""
    quotas = repr([(quota.team, quota.gpus, quota.gpus_of_class) for quota in problem.quotas])
    return hashlib.sha256(quotas.encode()).hexdigest()[:16]


def events_since(
    problem: Problem, state: LoopState, reported: Iterable[Event], paused: frozenset[str]
) -> tuple[Event, ...]:
    """List the reported events, and those found by comparing tasks, GPUs and quotas with the last look.

    At the first look only the events that telemetry reports count.
    """
    found = list(reported)
    runs = {held.task for held in problem.running}
    if state.looks:
        found += _cluster_events(problem, state)
        found += _task_events(problem, state, runs)
        if state.quotas != quota_key(problem):
            found.append(Event(EventKind.QUOTA_CHANGED))
        found += [Event(EventKind.TASK_RESUMED, task) for task in state.paused if task not in paused]
    found += [Event(EventKind.TASK_PAUSED, task) for task in sorted(paused & runs)]
    return tuple(dict.fromkeys(found))


def _cluster_events(problem: Problem, state: LoopState) -> list[Event]:
    now, before = set(problem.cluster.gpus), set(state.gpus)
    why = {gpu.id: gpu.why for gpu in problem.cluster.absent}
    lost = [Event(EventKind.GPU_LOST, gpu=gpu, detail=why.get(gpu, "")) for gpu in sorted(before - now)]
    return lost + [Event(EventKind.GPU_RETURNED, gpu=gpu) for gpu in sorted(now - before)]


def _task_events(problem: Problem, state: LoopState, runs: set[str]) -> list[Event]:
    now, before = {task.id: task.weight for task in problem.tasks}, dict(state.tasks)
    found = [Event(EventKind.TASK_ARRIVED, task) for task in now if task not in before and task not in runs]
    found += [Event(EventKind.TASK_FINISHED, task) for task in sorted(before) if task not in now]
    changed = (task for task, weight in now.items() if before.get(task, weight) != weight)
    return found + [Event(EventKind.PRIORITY_CHANGED, task) for task in changed]


def urgent_tasks(problem: Problem, events: Iterable[Event]) -> frozenset[str]:
    """Return the tasks that are acted on at once: those that arrived, or whose wait may be over."""
    waiting = {task.id for task in problem.tasks} - {held.task for held in problem.running}
    found: set[str] = set()
    for event in events:
        if event.kind in _FOR_ALL:
            found |= {task.id for task in problem.tasks}
        elif event.kind in _FREES_GPUS:
            found |= waiting
        elif event.kind in (EventKind.TASK_ARRIVED, EventKind.TASK_RESUMED) and event.task:
            found.add(event.task)
    return frozenset(found)


def told(event: Event) -> str:
    """Return an event as a sentence."""
    what = event.task or event.node or ("" if event.gpu is None else str(event.gpu))
    detail = f" ({event.detail})" if event.detail else ""
    return f"{event.kind.value} {what}{detail}".strip()


def lost_gpus(problem: Problem, state: LoopState, reported: Iterable[Event]) -> dict[GpuId, str]:
    """Return the GPUs that telemetry reported as lost, and why, until it or the inventory says otherwise.

    A GPU that was off the bus does not return just because reports of it stop. It returns when the inventory
    lists it again after leaving it out, or when an event says so (A029).
    """
    lost = dict(state.lost)
    for event in reported:
        nodes = [gpu for gpu in problem.cluster.gpus if event.node is not None and gpu.node == event.node]
        gpus = nodes if event.gpu is None else [event.gpu]
        if event.kind in (EventKind.GPU_LOST, EventKind.NODE_LOST):
            lost.update(dict.fromkeys(gpus, event.detail))
        elif event.kind in (EventKind.GPU_RETURNED, EventKind.NODE_RETURNED):
            for gpu in gpus:
                lost.pop(gpu, None)
    return {gpu: why for gpu, why in sorted(lost.items()) if gpu in problem.cluster.gpus}


def without_gpus(problem: Problem, lost: Mapping[GpuId, str]) -> Problem:
    """Return the cluster without lost GPUs."""
    if not lost:
        return problem
    cluster = problem.cluster
    absent = (
        AbsentGpu(gpu, cluster.gpus[gpu].gpu_class, f"lost {lost[gpu]}".strip()) for gpu in sorted(lost)
    )
    nodes = (replace(node, gpus=tuple(g for g in node.gpus if g.id not in lost)) for node in cluster.nodes)
    return replace(problem, cluster=replace(cluster, nodes=tuple(nodes), absent=(*cluster.absent, *absent)))
