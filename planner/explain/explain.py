"""The explanation of a plan: what limits it, what would improve it, alternatives, tasks that cannot run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from libra_plan.planner.explain.infeasible import CannotRun, cannot_run, runs_alone
from libra_plan.planner.explain.margins import (
    LimitGain,
    NextBest,
    OneMoreGpu,
    gains_of_limits,
    next_best,
    one_more_gpu,
)
from libra_plan.planner.explain.tasks import TaskExplanation, explain_task
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.plan import Plan, QueuedTask
from libra_plan.planner.problem import Problem
from libra_plan.profiles.counting import counted

__all__ = ["Explanation", "explain_no_plan", "explain_plan"]

_TOLD = 3  # tasks of a problem without any plan


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a plan.

    Attributes
    ----------
    tasks
        What binds each running task, and how else it could run.
    one_more_gpu
        What the plan would gain from one more GPU of each class.
    limits
        The limits whose next step gains something, the best first.
    next_best
        The best plan that is not this one; None where there is no other.
    cannot_run
        The tasks that could not run even alone, with what must give way.
    queued
        The tasks that wait, with the reason.
    """

    tasks: tuple[TaskExplanation, ...]
    one_more_gpu: tuple[OneMoreGpu, ...]
    limits: tuple[LimitGain, ...] = ()
    next_best: NextBest | None = None
    cannot_run: tuple[CannotRun, ...] = ()
    queued: tuple[QueuedTask, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Explanation({counted(len(self.tasks), 'running task')}, {len(self.queued)} waiting, "
            f"{counted(len(self.limits), 'limit')} with a gain)"
        )

    def summary(self) -> str:
        """Return the explanation as text.

        Returns
        -------
        str
            What `libra-plan explain` prints.
        """
        from libra_plan.planner.report.explanation_text import explanation_text

        return explanation_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, which JSON and YAML can hold.

        Returns
        -------
        dict[str, Any]
            `explanation`, and `queued` beside it.
        """
        data: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        queued = data.pop("queued")
        return {"explanation": data, "queued": queued}


def explain_plan(
    problem: Problem,
    plan: Plan,
    params: SolveParams | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Explanation:
    """Explain a plan of a problem; solves again for each GPU class and each limit that could help.

    Tasks that cannot run are examined last, for no longer than one solve may take.
    """
    params = params or SolveParams()
    waiting = [problem.task_of[queued.task] for queued in plan.queued]
    more = one_more_gpu(problem, plan, params)
    limits = gains_of_limits(problem, plan, params)
    second = next_best(problem, plan, params)
    in_time = _within(params.time_limit_s, clock)
    return Explanation(
        tasks=tuple(explain_task(problem, running, plan.joint) for running in plan.running),
        one_more_gpu=more,
        limits=limits,
        next_best=second,
        cannot_run=tuple(
            cannot_run(problem, task, in_time) for task in waiting if not runs_alone(problem, task)
        ),
        queued=plan.queued,
    )


def explain_no_plan(
    problem: Problem, limit_s: float, clock: Callable[[], float] = time.monotonic
) -> tuple[CannotRun, ...]:
    """Explain which limits must change so that the first tasks of a problem without a plan could run.

    The search stops at the time limit, but it finds at least one way for each task.
    """
    in_time = _within(limit_s, clock)
    stuck = (task for task in problem.tasks if not runs_alone(problem, task))
    return tuple(cannot_run(problem, task, in_time) for _, task in zip(range(_TOLD), stuck, strict=False))


def _within(limit_s: float, clock: Callable[[], float]) -> Callable[[], bool]:
    ends = clock() + limit_s
    return lambda: clock() < ends
