"""Policies that decide once: fixed splits, and the best plan for the first epoch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.problem import Arrangement, IncumbentTask, Problem, Role
from libra_plan.planner.simulate.noisy_cost_model import world_cluster
from libra_plan.planner.simulate.placing import best_in, shares, split
from libra_plan.planner.simulate.policies.known import at_first, names, same_tasks
from libra_plan.planner.simulate.policy import View

__all__ = ["BestStatic", "FixedSplit", "problem_of"]


def problem_of(view: View, task: str, cluster: Cluster) -> Problem:
    """Price one task at its first lengths on a part of the cluster."""
    return view.believed.problem(cluster, at_first(view), [task])


@dataclass
class FixedSplit:
    """Give every task GPUs of its own, equally or by weight, in the best form for its first lengths.

    Parts are cut anew when tasks come or go; a task whose GPUs fail or come back is planned anew in its part.
    With `even_roles` every role that is apart has equally many too, as teams do who set splits by hand (the
    baseline that Libra's evaluation calls static-uniform). With `smallest_layouts` roles take the smallest
    replicas only, and each task chooses between sharing its GPUs in turn and splitting them: RLinf's rule,
    which searches no tensor parallelism.
    """

    name: str
    weighted: bool
    smallest_layouts: bool = False
    even_roles: bool = False
    moves_free: bool = False
    elastic: bool = True
    _parts: dict[str, frozenset[GpuId]] = field(default_factory=dict)
    _placed: dict[str, tuple[frozenset[GpuId], tuple[IncumbentTask, ...]]] = field(default_factory=dict)

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Cut the cluster, and plan each task where its GPUs have changed."""
        if not same_tasks(self._parts, view):
            weights = {
                name: view.world.task_of[name].weight if self.weighted else 1.0 for name in names(view)
            }
            whole = world_cluster(view.world)
            self._parts = split(whole, shares(whole, weights))
            self._placed = {}
        found: list[IncumbentTask] = []
        for name in names(view):
            works = self._parts[name] & frozenset(view.cluster.gpus)
            if self._placed.get(name, (None, ()))[0] != works:
                self._placed[name] = (works, best_in(partial(self._priced, view, name), view.cluster, works))
            found += self._placed[name][1]
        return tuple(found)

    def _priced(self, view: View, name: str, cluster: Cluster) -> Problem:
        problem = problem_of(view, name, cluster)
        (task,) = problem.tasks
        if self.smallest_layouts:
            task = replace(task, roles=tuple(map(_smallest, task.roles)))
        if self.even_roles and Arrangement.COLOCATED not in task.arrangements:
            part = len(cluster.gpus) // len(task.roles)
            task = replace(task, roles=tuple(_largest(role, part) for role in task.roles))
        return replace(problem, tasks=(task,))


def _smallest(role: Role) -> Role:
    least = min(option.layout.gpus_per_replica for option in role.options)
    return replace(role, options=tuple(o for o in role.options if o.layout.gpus_per_replica == least))


def _largest(role: Role, gpus: int) -> Role:
    """Leave the options with most GPUs, though no more than so many where that can be."""
    within = [option.gpus for option in role.options if option.gpus <= gpus]
    most = max(within, default=min(option.gpus for option in role.options))
    return replace(role, options=tuple(option for option in role.options if option.gpus == most))


@dataclass
class BestStatic:
    """Plan all tasks together once, for their first lengths; again only when tasks or GPUs come or go."""

    name: str = "best-static"
    moves_free: bool = False
    elastic: bool = True
    _for: tuple[frozenset[GpuId], frozenset[str]] | None = None
    _placed: tuple[IncumbentTask, ...] = ()

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Plan when the cluster or the tasks are others than before; what runs is then the start."""
        now = (frozenset(view.cluster.gpus), frozenset(names(view)))
        if now != self._for:
            self._for = now
            running = view.running
            self._placed = best_in(
                lambda part: view.believed.problem(part, at_first(view), names(view), running),
                view.cluster,
                now[0],
            )
        return self._placed
