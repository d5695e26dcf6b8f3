"""Problems with a kind of form left out, for comparisons: mixed rollouts, or pools that are shared."""

from __future__ import annotations

from dataclasses import replace

from libra_plan.planner.problem import Arrangement, Problem, Role, Task

__all__ = ["without_mixes", "without_sharing"]


def without_mixes(problem: Problem) -> Problem:
    """Leave out rollouts whose replicas differ in size."""
    return replace(problem, tasks=tuple(replace(t, roles=tuple(map(_alike, t.roles))) for t in problem.tasks))


def _alike(role: Role) -> Role:
    return replace(role, options=tuple(option for option in role.options if not option.mix))


def without_sharing(problem: Problem) -> Problem:
    """Give every role GPUs of its own, where the task allows it, and no pool to two tasks."""
    return replace(problem, tasks=tuple(map(_apart, problem.tasks)), sharing=())


def _apart(task: Task) -> Task:
    if len(task.gpu_roles) < 2 or Arrangement.SEPARATE not in task.arrangements:
        return task
    return replace(task, arrangements=frozenset({Arrangement.SEPARATE}))
