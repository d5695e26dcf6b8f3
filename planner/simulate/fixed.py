"""Placements that are given and kept: to time a world where somebody's run, or a published one, was."""

from __future__ import annotations

from collections.abc import Sequence

from libra_plan.models.parallelism import Layout
from libra_plan.planner.problem import IncumbentRole, IncumbentTask
from libra_plan.planner.simulate.noisy_cost_model import world_cluster
from libra_plan.planner.simulate.policy import View
from libra_plan.planner.simulate.world import World

__all__ = ["Fixed", "hold"]


def hold(world: World, task: str, /, *, shared: bool = False, **replicas: Sequence[int]) -> IncumbentTask:
    """Place roles on the first GPUs: `rollout=[1, 1]` are two replicas of one GPU each.

    `shared`: all roles take the same GPUs in turn. A second task is placed from the other end.
    """
    gpus, at, roles = list(world_cluster(world).gpus), 0, []
    if task != world.tasks[0].id:
        gpus.reverse()
    for role, sizes in replicas.items():
        at = 0 if shared else at
        made = []
        for size in sizes:
            made.append(tuple(gpus[at : at + size]))
            at += size
        mix = tuple(Layout(tp=size) for size in sizes) if len(set(sizes)) > 1 else ()
        roles.append(IncumbentRole(role, Layout(tp=max(sizes)), tuple(made), "pool" if shared else role, mix))
    return IncumbentTask(task, tuple(roles))


class Fixed:
    """Keep what is given from the first look on; a task that lost a GPU waits."""

    name = "fixed"
    elastic = True

    def __init__(self, *placed: IncumbentTask, moves_free: bool = True) -> None:
        self.placed, self.moves_free = placed, moves_free

    def decide(self, view: View) -> tuple[IncumbentTask, ...]:
        """Give what is given, as far as its GPUs work."""
        alive = set(view.cluster.gpus)
        return tuple(
            held
            for held in self.placed
            if held.task in {task.id for task in view.tasks}
            and all(gpu in alive for role in held.roles for replica in role.replicas for gpu in replica)
        )
