"""Policies that react to what they see: thresholds of utilization, and queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from libra_plan.models.topology import GpuId
from libra_plan.planner.problem import IncumbentTask, Role
from libra_plan.planner.simulate.noisy_cost_model import world_cluster
from libra_plan.planner.simulate.placing import best_in, shares, split
from libra_plan.planner.simulate.policies.known import at_first, names, same_tasks
from libra_plan.planner.simulate.policy import View

__all__ = ["GreedyByQueue", "RuleBased"]

_BUSY, _IDLE = 0.9, 0.6
_PATIENCE = 3
"""Looks in a row that a threshold must be passed, before a unit is moved."""


@dataclass
class RuleBased:
    """Scale roles by thresholds: a role over 90 % busy takes GPUs of a role of its task under 60 %.

    Every task has an equal part of the cluster; within it, one replica of the busier role is wanted more,
    after three looks in a row. Only tasks whose roles have GPUs of their own can be scaled so.
    """

    name: str = "rule-based"
    moves_free: bool = False
    elastic: bool = True
    _parts: dict[str, frozenset[GpuId]] = field(default_factory=dict)
    _least: dict[tuple[str, str], int] = field(default_factory=dict)
    _looks: dict[str, int] = field(default_factory=dict)
    _placed: dict[str, tuple[frozenset[GpuId], tuple[IncumbentTask, ...]]] = field(default_factory=dict)

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Count looks, and give the busier role more."""
        if not same_tasks(self._parts, view):
            whole = world_cluster(view.world)
            self._parts = split(whole, shares(whole, dict.fromkeys(names(view), 1.0)))
            self._placed, self._least = {}, {}
        found: list[IncumbentTask] = []
        for task in view.tasks:
            works = self._parts[task.id] & frozenset(view.cluster.gpus)
            before = self._placed.get(task.id)
            if before is None or before[0] != works:
                self._placed[task.id] = (works, self._planned(view, task.id, works))
            elif self._asks(task.id, task.busy):
                self._scale(view, task.id, task.busy, before[1])
                placed = self._planned(view, task.id, works)
                self._placed[task.id] = (works, placed or before[1])
            found += self._placed[task.id][1]
        return tuple(found)

    def _asks(self, task: str, busy: Mapping[str, float]) -> bool:
        asks = len(busy) > 1 and max(busy.values()) > _BUSY and min(busy.values()) < _IDLE
        self._looks[task] = self._looks.get(task, 0) + 1 if asks else 0
        return self._looks[task] >= _PATIENCE

    def _scale(self, view: View, task: str, busy: Mapping[str, float], placed: tuple[IncumbentTask, ...]) -> None:
        self._looks[task] = 0
        wanted = max(busy, key=lambda role: busy[role])
        for held in placed:
            for role in held.roles:
                gpus = sum(map(len, role.replicas))
                more = max(map(len, role.replicas)) if role.role == wanted else 0
                self._least[task, role.role] = gpus + more if more else 1

    def _planned(self, view: View, task: str, works: frozenset[GpuId]) -> tuple[IncumbentTask, ...]:
        def priced(cluster):  # type: ignore[no-untyped-def]
            problem = view.believed.problem(cluster, at_first(view), [task])
            one = problem.tasks[0]
            roles = tuple(self._bounded(task, role) for role in one.roles)
            return replace(problem, tasks=(replace(one, roles=roles),))

        return best_in(priced, view.cluster, works)

    def _bounded(self, task: str, role: Role) -> Role:
        return replace(role, min_gpus=max(role.min_gpus, self._least.get((task, role.id), 1)))


@dataclass
class GreedyByQueue:
    """Give a node, look after look, from the task with the shortest queue to that with the longest.

    The queue is the share of a step's trajectories that wait for a slot, averaged over looks. Tasks begin
    with equal parts; a node changes hands when queues differ by half a step or more.
    """

    name: str = "greedy-queue"
    moves_free: bool = False
    elastic: bool = True
    _gpus: dict[str, int] = field(default_factory=dict)
    _queue: dict[str, float] = field(default_factory=dict)
    _for: tuple[frozenset[GpuId], tuple[tuple[str, int], ...]] | None = None
    _placed: tuple[IncumbentTask, ...] = ()

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Average queues; let a node change hands; plan each task in its part."""
        whole = world_cluster(view.world)
        unit = min(view.world.site.gpus_per_node, max(1, len(whole.gpus) // (2 * len(view.tasks))))
        if not same_tasks(self._gpus, view):
            self._gpus = shares(whole, dict.fromkeys(names(view), 1.0))
            self._queue = dict.fromkeys(names(view), 0.0)
        for task in view.tasks:
            self._queue[task.id] += 0.3 * ((task.queue or 0.0) - self._queue[task.id])
        longest = max(self._queue, key=lambda name: self._queue[name])
        giving = [name for name in self._gpus if self._gpus[name] > unit and name != longest]
        shortest = min(giving, key=lambda name: self._queue[name], default=longest)
        if self._queue[longest] - self._queue[shortest] >= 0.5:
            self._gpus[longest] += unit
            self._gpus[shortest] -= unit
            self._queue = dict.fromkeys(self._queue, 0.0)
        return self._planned(view)

    def _planned(self, view: View) -> tuple[IncumbentTask, ...]:
        now = (frozenset(view.cluster.gpus), tuple(sorted(self._gpus.items())))
        if now != self._for:
            self._for = now
            parts = split(world_cluster(view.world), self._gpus)
            found: list[IncumbentTask] = []
            for name in names(view):
                found += best_in(
                    lambda part, name=name: view.believed.problem(part, at_first(view), [name]),  # type: ignore[misc]
                    view.cluster,
                    parts[name] & now[0],
                )
            self._placed = tuple(found)
        return self._placed
