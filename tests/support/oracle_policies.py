"""Every plan of a small problem one by one, for what policies promise; shares nothing with the planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from oracle import GPU_BITS, Oracle

from libra_plan.planner.problem import Problem, Task


@dataclass(frozen=True)
class Run:
    """One way one task can run: normalised throughput, worth, steps/s and GPUs of each class."""

    normalised: float
    worth: float
    steps_per_s: float
    gpus: tuple[tuple[str, int], ...]

    def of_class(self, name: str | None) -> int:
        return sum(number for gpu_class, number in self.gpus if name in (None, gpu_class))


WAITS = Run(0.0, 0.0, 0.0, ())
Runs = dict[str, Run]


def every_plan(problem: Problem, allowed: Callable[[Task, Run], bool] | None = None) -> list[Runs]:
    """List all plans, waiting tasks included; only ways to run that are `allowed` count."""
    oracle = Oracle(problem)
    found: list[tuple[int, Runs]] = [(0, {})]
    for task in problem.tasks:
        ways = [(0, WAITS), *((state, _run(oracle, task, state, *entry)) for state, entry in
                              oracle.entries(task).items())]  # fmt: skip
        ways = [(state, run) for state, run in ways if allowed is None or allowed(task, run)]
        found = [
            (taken + state, {**runs, task.id: run})
            for taken, runs in found
            for state, run in ways
            if oracle.fits(taken + state)
        ]
        assert len(found) < 300_000, "this problem has too many plans to list"
    return [runs for _, runs in found]


def _run(oracle: Oracle, task: Task, state: int, normalised: float, worth: float) -> Run:
    gpus: Counter[str] = Counter()
    for at, kind in enumerate(oracle.kinds):
        gpus[kind.gpu_class] += (state >> (GPU_BITS * at)) & ((1 << GPU_BITS) - 1)
    unit = oracle.reference(task) or 0.0
    return Run(normalised, worth, normalised * unit, tuple(sorted(gpus.items())))


def total(runs: Runs, among: set[str] | None = None) -> float:
    return sum(run.worth for task, run in runs.items() if among is None or task in among)


def cost(problem: Problem, runs: Runs) -> float:
    prices = dict(problem.cluster.price_per_gpu_hour)
    return sum(prices[name] * number for run in runs.values() for name, number in run.gpus)


def wanted(task: Task) -> float:
    rates = [task.min_steps_per_s or 0.0]
    if task.deadline is not None:
        rates.append(task.deadline.steps / task.deadline.within_s)
    return max(rates)


def able(problem: Problem) -> set[str]:
    oracle = Oracle(problem)
    return {task.id for task in problem.tasks if oracle.entries(task)}


def only(problem: Problem, names: set[str]) -> Problem:
    return replace(problem, tasks=tuple(task for task in problem.tasks if task.id in names))
