"""What would improve the plan: one more GPU, or one limit raised by a step; and the next-best plan.

Gains are exact, because the problem is solved again. LP dual prices say the same for a fraction of a GPU. The
LP of the changed problem bounds the gain from above, so limits that cannot help are not solved for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.explain.relax import Relaxation, relaxed
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.constraints import base_constraints
from libra_plan.planner.optimize.lp_bound import lp_bound
from libra_plan.planner.optimize.objective import TaskCandidates, candidates_of
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan, RunningTask
from libra_plan.planner.problem import Policy, Problem, Task
from libra_plan.profiles.counting import counted

__all__ = ["LimitGain", "NextBest", "OneMoreGpu", "gains_of_limits", "next_best", "one_more_gpu"]

_STEP = 0.1  # memory, cores and host memory are raised by a tenth
_SAME = 1e-6
_TRIED = 8  # limits that are solved for again, those with the highest bound first
_TOLD = 5


@dataclass(frozen=True, slots=True)
class OneMoreGpu:
    """What the whole plan would gain from one more GPU of a class, on a node of its own.

    `price` is the LP's for a GPU by itself, `price_in_node` per GPU of one more full node: the row's
    dual, or what a whole GPU (node) adds to the LP where that is less, since at a kink the dual is
    the price of the GPU before. None where the LP has no optimum.
    """

    gpu_class: str
    objective: float
    gain: float
    goes_to: tuple[str, ...]
    price: float | None = None
    price_in_node: float | None = None


@dataclass(frozen=True, slots=True)
class LimitGain:
    """What the whole plan would gain if one limit changed by one step; `at_most` is the LP's bound."""

    limit: Relaxation
    gain: float
    at_most: float | None


@dataclass(frozen=True, slots=True)
class NextBest:
    """The best other plan: how much objective it loses (`loss`), and what it does differently.

    Plans that differ only by a dominated configuration do not count.
    """

    objective: float
    loss: float
    differs: tuple[str, ...]


def one_more_gpu(problem: Problem, plan: Plan, params: SolveParams) -> tuple[OneMoreGpu, ...]:
    """Solve again with one more GPU of each class; throughputs stay relative to today's fair shares."""
    tasks = candidates_of(problem, problem)
    found = lp_bound(tasks, base_constraints(tasks, problem.cluster), _worst(problem, tasks))
    duals = None if found is None else found.duals
    value = _lp_value(problem, problem)
    gains = (_one_more(problem, plan, name, params, duals, value) for name in problem.cluster.gpu_classes)
    return tuple(each for each in gains if each is not None)


def _worst(problem: Problem, tasks: Sequence[TaskCandidates]) -> list[int] | None:
    """List the tasks whose lowest level max-min raises; None for the other policies."""
    if problem.policy is not Policy.MAX_MIN:
        return None
    return [t for t, each in enumerate(tasks) if each.candidates]


def _lp_value(problem: Problem, shares_of: Problem) -> float | None:
    """Return the LP bound of the objective, measured against the fair shares of another problem."""
    tasks = candidates_of(problem, shares_of)
    rows = base_constraints(tasks, problem.cluster)
    found = lp_bound(tasks, rows, _worst(problem, tasks))
    return None if found is None else found.value


def _one_more(
    problem: Problem,
    plan: Plan,
    gpu_class: str,
    params: SolveParams,
    duals: dict[str, float] | None,
    value: float | None,
) -> OneMoreGpu | None:
    larger = _with_more(problem, gpu_class, 1)
    result = solve_problem(larger, params, shares_of=problem)
    if result.plan is None:
        return None
    before = {running.task: running.configuration.gpus for running in plan.running}
    changed = tuple(
        running.task
        for running in result.plan.running
        if running.configuration.gpus > before.get(running.task, 0)
    )
    objective = result.plan.certificate.objective
    prices: list[float | None] = []
    full = problem.cluster.full_node_gpus[gpu_class]
    for size in (1, full):
        then = _lp_value(_with_more(problem, gpu_class, size), problem)
        dual = _dual(duals, gpu_class, size, full)
        known = None not in (dual, then, value)
        prices.append(max(0.0, min(dual or 0.0, ((then or 0.0) - (value or 0.0)) / size)) if known else None)
    gain = max(0.0, objective - plan.certificate.objective)
    return OneMoreGpu(gpu_class, objective, gain, changed, prices[0], prices[1])


def _with_more(problem: Problem, gpu_class: str, gpus: int) -> Problem:
    """Add a node of so many GPUs, with the CPU cores and host memory that GPUs of the class have."""
    more = Relaxation("gpus", "", gpu_class, None, 1.0, 0.0, gpus)
    return relaxed(problem, [more])


def _dual(duals: dict[str, float] | None, gpu_class: str, gpus: int, full: int) -> float | None:
    """Add up the duals of a class's rows, per GPU, for a node of so many GPUs."""
    if duals is None:
        return None
    total = 0.0
    for name, dual in duals.items():
        if name.startswith(f"gpus:{gpu_class}:"):
            size = int(name.rpartition(":")[2])
            whole = gpus if gpus == full and size > full else size * (gpus // size)
            total += dual * whole
    return total / gpus


# ---------------------------------------------------------------- limits


def gains_of_limits(problem: Problem, plan: Plan, params: SolveParams) -> tuple[LimitGain, ...]:
    """Raise each limit by one step, solve again, and list those that gain, the best first."""
    objective = plan.certificate.objective
    bounds = [(each, _lp_value(relaxed(problem, [each]), problem)) for each in _steps(problem)]
    worthwhile = [
        (each, bound)
        for each, bound in bounds
        if bound is None or bound > objective + max(params.gap, _SAME) * max(1.0, abs(objective))
    ]
    worthwhile.sort(key=lambda pair: float("-inf") if pair[1] is None else -pair[1])
    found = []
    for each, bound in worthwhile[:_TRIED]:
        result = solve_problem(relaxed(problem, [each]), params, shares_of=problem)
        if result.plan is not None:
            gain = result.plan.certificate.objective - objective
            found.append(LimitGain(each, gain, None if bound is None else bound - objective))
    gaining = [each for each in found if each.gain > _SAME * max(1.0, abs(objective))]
    return tuple(sorted(gaining, key=lambda each: -each.gain)[:_TOLD])


def _steps(problem: Problem) -> Iterator[Relaxation]:
    for task in problem.tasks:
        yield from _task_steps(problem, task)
    for name in problem.cluster.gpu_classes:
        now = problem.cluster.memory_mib(name)
        yield Relaxation("memory", "", name, now, now * (1 + _STEP), _STEP)
    cores = [node.cpu_cores for node in problem.cluster if node.cpu_cores]
    host = [node.host_memory_mib for node in problem.cluster if node.host_memory_mib]
    for code, stated in (("cpu-cores", cores), ("host-memory", host)):
        if stated:
            now = max(stated)
            yield Relaxation(code, "", "", now, now * (1 + _STEP), _STEP)


def _task_steps(problem: Problem, task: Task) -> Iterator[Relaxation]:
    """Yield the next step of each limit of a task: the next size for which it has a configuration."""
    if task.max_gpus is not None:
        free = configurations_of(replace(task, max_gpus=None), problem.cluster)
        larger = [int(gpus) for gpus in free.gpus if gpus > task.max_gpus]
        yield from _up("task-max", task.id, "", task.max_gpus, larger)
    if task.min_gpus:
        free = configurations_of(replace(task, min_gpus=0), problem.cluster)
        yield from _down("task-min", task.id, "", task.min_gpus, [int(gpus) for gpus in free.gpus])
    for role in task.gpu_roles:
        sizes = [option.gpus for option in role.options]
        if role.max_gpus is not None:
            larger = [gpus for gpus in sizes if gpus > role.max_gpus]
            yield from _up("role-max", task.id, role.id, role.max_gpus, larger)
        if role.min_gpus > 1:
            yield from _down("role-min", task.id, role.id, role.min_gpus, sizes)
        if role.pinned_gpus:
            yield Relaxation("pin", task.id, role.id, float(len(role.pinned_gpus)), 0.0, 1.0)
        if role.excluded_gpus:
            gpus = tuple(sorted(role.excluded_gpus))
            yield Relaxation(
                "exclusion", task.id, role.id, float(len(gpus)), float(len(gpus)), 1.0, allowed=gpus
            )


def _up(code: str, task: str, role: str, now: int, larger: Sequence[int]) -> Iterator[Relaxation]:
    if larger:
        yield Relaxation(code, task, role, float(now), float(min(larger)), min(larger) / now - 1.0)


def _down(code: str, task: str, role: str, now: int, sizes: Sequence[int]) -> Iterator[Relaxation]:
    smaller = max((size for size in sizes if size < now), default=0)
    if smaller:
        yield Relaxation(code, task, role, float(now), float(smaller), 1.0 - smaller / now)


# ---------------------------------------------------------------- next best


def next_best(problem: Problem, plan: Plan, params: SolveParams) -> NextBest | None:
    """Solve again without this combination of configurations; return None if there is no other plan."""
    other = solve_problem(problem, params, other_than=plan).plan
    if other is None:
        return None
    differs = tuple(_differences(problem, plan, other))
    if not differs:
        return None
    objective = other.certificate.objective
    return NextBest(objective, plan.certificate.objective - objective, differs)


def _differences(problem: Problem, plan: Plan, other: Plan) -> Iterator[str]:
    now = {running.task: running for running in plan.running}
    then = {running.task: running for running in other.running}
    for task in problem.tasks:
        old, new = now.get(task.id), then.get(task.id)
        if old is None and new is not None:
            yield f"{task.id} runs: {_way(other, new)}"
        elif old is not None and new is None:
            yield f"{task.id} waits"
        elif old is not None and new is not None and old.configuration.phases != new.configuration.phases:
            yield f"{task.id}: {_way(other, new)} instead of {_way(plan, old)}"


def _way(plan: Plan, running: RunningTask) -> str:
    phases = [
        " | ".join(" + ".join(f"{c.role} {c.option.form}" for c in pool.choices) for pool in phase.pools)
        for phase in running.configuration.phases
    ]
    return (
        f"{' ; '.join(phases)} on {counted(running.configuration.gpus, 'GPU')}{_shared(plan, running.task)}"
    )


def _shared(plan: Plan, task: str) -> str:
    """Return the tasks that a task shares those GPUs with, in words."""
    others = [name for run in plan.joint if task in run.tasks for name in run.tasks if name != task]
    return f", some of them with {' and '.join(others)}" if others else ""
