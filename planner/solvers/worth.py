"""What a column is worth: throughput against the task's weighted fair share, less switching.

normalised = throughput ÷ throughput of the task alone on its weighted fair share of the GPUs
worth      = weight · normalised · (1 − restart_s ÷ horizon_s when the task's placement changes)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from libra_plan.planner.columns import ColumnTable, columns_of
from libra_plan.planner.plan import Column
from libra_plan.planner.problem import HeldTask, Problem, Task
from libra_plan.planner.solvers.held import held_column

__all__ = ["Candidate", "TaskCandidates", "candidates_of", "fair_share_gpus", "reference_steps_per_s"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A column as the master sees it. `held` is set when it keeps the GPUs the task runs on."""

    column: Column
    normalised: float
    worth: float
    held: HeldTask | None = None

    @property
    def moved_mib(self) -> float:
        """Give the state to be moved when it is chosen, MiB (0 when it keeps its GPUs)."""
        if self.held is not None:
            return 0.0
        return sum(
            choice.option.static_mib * choice.option.gpus
            for phase in self.column.phases
            for pool in phase.pools
            for choice in pool.choices
        )


@dataclass(frozen=True, slots=True)
class TaskCandidates:
    """A task with everything it may be given."""

    task: Task
    candidates: tuple[Candidate, ...]
    reference_steps_per_s: float | None
    dropped: int
    running: bool


def fair_share_gpus(problem: Problem, task: Task) -> float:
    """Give the task's weighted fair share of the cluster, GPUs."""
    weights = sum(each.weight for each in problem.tasks)
    return len(problem.cluster.gpus) * task.weight / weights


def reference_steps_per_s(columns: ColumnTable, share: float) -> float | None:
    """Give the best throughput on a fair share, steps/s; None when the task has no column.

    A task that does not run on its share at all is held against the smallest number of GPUs it
    runs on, scaled down to the share.
    """
    if not len(columns):
        return None
    within = columns.seconds[columns.gpus <= share]
    if len(within):
        return float(1.0 / within.min())
    smallest = np.lexsort((columns.seconds, columns.gpus))[0]
    return float(share / columns.gpus[smallest] / columns.seconds[smallest])


def candidates_of(problem: Problem, shares_of: Problem) -> list[TaskCandidates]:
    """List every task's candidates: its columns, and the placement it already holds.

    Fair shares are those of `shares_of`, nearly always the problem itself.
    """
    held_tasks = {held.task: held for held in problem.running}
    return [_of_task(problem, task, held_tasks.get(task.id), shares_of) for task in problem.tasks]


def _of_task(problem: Problem, task: Task, held: HeldTask | None, shares_of: Problem) -> TaskCandidates:
    columns = columns_of(task, problem.cluster)
    of_shares = columns if shares_of is problem else columns_of(task, shares_of.cluster)
    reference = reference_steps_per_s(of_shares, fair_share_gpus(shares_of, task))
    found: list[Candidate] = []
    if reference is not None:
        kept = None if held is None else held_column(problem, task, held)
        if kept is not None and held is not None:
            normalised = kept.steps_per_s / reference
            found.append(Candidate(kept, normalised, task.weight * normalised, held))
        stay = 1.0 if held is None else max(0.0, 1.0 - task.restart_s / problem.horizon_s)
        for column in columns.columns:
            normalised = column.steps_per_s / reference
            found.append(Candidate(column, normalised, task.weight * normalised * stay))
    return TaskCandidates(task, tuple(found), reference, columns.dropped, held is not None)
