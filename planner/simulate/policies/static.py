"""Policies that decide once, and the clairvoyant, which knows the true costs and future lengths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from libra_plan.models.quantities import Estimate, Origin, exactly
from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import Arrangement, IncumbentTask, Problem, Role
from libra_plan.planner.simulate.policy import (
    PARAMS,
    TaskView,
    View,
    best_in,
    first_lengths,
    shares,
    split,
)
from libra_plan.planner.simulate.world import world_cluster

__all__ = ["BestStatic", "Clairvoyant", "FixedSplit", "SplitPolicy"]

Placed = tuple[IncumbentTask, ...]


@dataclass
class SplitPolicy:
    """Gives every task GPUs of its own, equally or by weight, in the best form for its first lengths.

    The split is made again when tasks come or go. A task is planned again in its part when its GPUs fail
    or return, and when a subclass says so.
    """

    name: str
    weighted: bool = False
    moves_free: bool = False
    elastic: bool = True
    _parts: dict[str, frozenset[GpuId]] = field(default_factory=dict)
    _placed: dict[str, tuple[frozenset[GpuId], Placed]] = field(default_factory=dict)

    def decide(self, view: View) -> Placed | None:
        """Cut the cluster, and plan each task where it must be."""
        if set(self._parts) != set(view.names):
            self._parts, self._placed = self._cut(view), {}
        for task in view.tasks:
            works = self._parts[task.id] & frozenset(view.cluster.gpus)
            before = self._placed.get(task.id)
            if before is None or before[0] != works:
                self._placed[task.id] = works, self._planned(view, task, works)
            else:
                self._placed[task.id] = works, self._revised(view, task, works, before[1])
        return tuple(held for name in view.names for held in self._placed[name][1])

    def _cut(self, view: View) -> dict[str, frozenset[GpuId]]:
        weights = {name: view.world.task_of[name].weight if self.weighted else 1.0 for name in view.names}
        whole = world_cluster(view.world)
        return split(whole, shares(whole, weights))

    def _planned(self, view: View, task: TaskView, works: Iterable[GpuId]) -> Placed:
        return best_in(lambda part: self._priced(view, task.id, part), view.cluster, works)

    def _revised(self, view: View, task: TaskView, works: Iterable[GpuId], placed: Placed) -> Placed:
        """Return the placement of a task whose part is unchanged."""
        return placed

    def _priced(self, view: View, name: str, part: Cluster) -> Problem:
        return view.estimated.problem(part, first_lengths(view), [name])


@dataclass
class FixedSplit(SplitPolicy):
    """A split that is kept.

    With `even_roles` every role that is apart has equally many GPUs, as teams do who set splits by hand (the
    baseline that Libra's evaluation calls static-uniform). With `smallest_layouts` roles take the smallest
    replicas only, and each task chooses between sharing its GPUs in turn and splitting them: RLinf's rule,
    which searches no tensor parallelism.
    """

    smallest_layouts: bool = False
    even_roles: bool = False

    def _priced(self, view: View, name: str, part: Cluster) -> Problem:
        problem = super()._priced(view, name, part)
        (task,) = problem.tasks
        if self.smallest_layouts:
            task = replace(task, roles=tuple(map(_smallest, task.roles)))
        if self.even_roles and Arrangement.COLOCATED not in task.arrangements:
            gpus = len(part.gpus) // len(task.roles)
            task = replace(task, roles=tuple(_largest(role, gpus) for role in task.roles))
        return replace(problem, tasks=(task,))


def _smallest(role: Role) -> Role:
    least = min(option.layout.gpus_per_replica for option in role.options)
    return replace(role, options=tuple(o for o in role.options if o.layout.gpus_per_replica == least))


def _largest(role: Role, gpus: int) -> Role:
    """Keep the options with most GPUs, though no more than so many where that is possible."""
    within = [option.gpus for option in role.options if option.gpus <= gpus]
    most = max(within, default=min(option.gpus for option in role.options))
    return replace(role, options=tuple(option for option in role.options if option.gpus == most))


@dataclass
class BestStatic:
    """Plans all tasks together once, for their first lengths; again only when tasks or GPUs come or go."""

    name: str = "best-static"
    moves_free: bool = False
    elastic: bool = True
    _for: tuple[frozenset[GpuId], frozenset[str]] | None = None
    _placed: Placed = ()

    def decide(self, view: View) -> Placed | None:
        """Plan again when the cluster or the tasks have changed, starting from what runs."""
        now = (frozenset(view.cluster.gpus), frozenset(view.names))
        if now != self._for:
            self._for = now
            running = view.running
            self._placed = best_in(
                lambda part: view.estimated.problem(part, first_lengths(view), view.names, running),
                view.cluster,
                now[0],
            )
        return self._placed


@dataclass
class Clairvoyant:
    """Knows true costs and the lengths to come; its moves cost nothing but the end of a step.

    It solves at every look for the middle of the time to the next ones, and moves for `least_gain` or more.
    """

    name: str = "clairvoyant"
    moves_free: bool = True
    elastic: bool = True
    least_gain: float = 0.01

    def decide(self, view: View) -> Placed | None:
        """Solve the true problem; keep what runs if it is nearly as good."""
        means = {task.id: _to_come(view, task) for task in view.tasks}
        problem = view.true.problem(view.cluster, means, view.names, view.running)
        plan = solve_problem(problem, PARAMS).plan
        if plan is None:
            return None
        running = dict(plan.certificate.baselines).get("running", 0.0)
        if not view.urgent and plan.certificate.objective < running * (1.0 + self.least_gain):
            return None
        return held_by(plan)


def _to_come(view: View, task: TaskView) -> Estimate:
    """Return the true mean length half a dozen looks ahead, at the pace so far."""
    spec = view.world.task_of[task.id]
    here = max(1.0, view.now_s - spec.arrives_s)
    pace = task.steps_done / here
    mean = spec.responses.mean_at(task.steps_done + pace * 3.0 * view.world.look_s)
    return exactly(mean, "tokens", Origin.MEASURED)
