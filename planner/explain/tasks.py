"""Why the plan is as it is: what binds each task, what another GPU would bring, what else was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.columns import columns_of
from libra_plan.planner.plan import Column, MemoryMode, Plan, RunningTask
from libra_plan.planner.problem import Problem, Task
from libra_plan.planner.solvers.base import SolveParams
from libra_plan.planner.solvers.solve import solve

__all__ = ["Alternative", "Explanation", "OneMoreGpu", "TaskExplanation", "explain"]

_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best way to run the task in one arrangement on no more GPUs than it has now."""

    arrangement: str
    gpus: int
    step_time_s: float


@dataclass(frozen=True, slots=True)
class TaskExplanation:
    """What binds one running task.

    `bottleneck` is the role with the largest share of the step, `share` that share. `binding` says
    which limit keeps the task from being faster; `one_more_gpu_gain` is the relative gain in
    throughput it would have with the next larger column, which needs `gpus_needed` more GPUs (None:
    no larger column is faster).
    """

    task: str
    bottleneck: str
    share: float
    binding: str
    one_more_gpu_gain: float | None
    gpus_needed: int | None
    notes: tuple[str, ...]
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True)
class OneMoreGpu:
    """What the whole plan would gain from one more GPU of a class, on a node of its own."""

    gpu_class: str
    objective: float
    gain: float
    goes_to: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a plan."""

    tasks: tuple[TaskExplanation, ...]
    one_more_gpu: tuple[OneMoreGpu, ...]


def explain(problem: Problem, plan: Plan, params: SolveParams | None = None) -> Explanation:
    """Explain a plan of a problem; solves once more for each GPU class of the cluster."""
    tasks = tuple(_task(problem, running) for running in plan.running)
    more = (
        _with_one_more(problem, plan, name, params or SolveParams()) for name in problem.cluster.gpu_classes
    )
    return Explanation(tasks, tuple(each for each in more if each is not None))


def _task(problem: Problem, running: RunningTask) -> TaskExplanation:
    task = problem.task_of[running.task]
    columns = columns_of(task, problem.cluster).columns
    role, share = _bottleneck(running.column)
    larger = _next_faster(columns, running.column)
    return TaskExplanation(
        task=running.task,
        bottleneck=role,
        share=share,
        binding=_binding(task, running.column, larger),
        one_more_gpu_gain=None if larger is None else larger.steps_per_s / running.column.steps_per_s - 1.0,
        gpus_needed=None if larger is None else larger.gpus - running.column.gpus,
        notes=_notes(running.column, role),
        alternatives=_alternatives(task, problem.cluster, running.column.gpus),
    )


def _bottleneck(column: Column) -> tuple[str, float]:
    """Find the role that takes most of the step's time, and its share of all roles' time."""
    times = {
        choice.role: choice.option.time_s.value
        for phase in column.phases
        for pool in phase.pools
        for choice in pool.choices
    }
    role = max(times, key=lambda name: times[name])
    return role, times[role] / sum(times.values())


def _next_faster(columns: Sequence[Column], now: Column) -> Column | None:
    """Find the smallest column that has more GPUs and is faster."""
    larger = [
        column
        for column in columns
        if column.gpus > now.gpus and column.step_time_s.value < now.step_time_s.value * (1 - _SAME)
    ]
    return min(larger, key=lambda column: (column.gpus, column.step_time_s.value), default=None)


def _binding(task: Task, column: Column, larger: Column | None) -> str:
    """Name the limit that keeps the task from being faster."""
    if larger is not None:
        return f"GPUs: {larger.gpus - column.gpus} more would make it faster"
    if task.max_gpus is not None and column.gpus >= task.max_gpus:
        return f"max_gpus {task.max_gpus} of the task"
    for role in task.gpu_roles:
        if role.max_gpus is not None and _role_gpus(column, role.id) >= role.max_gpus:
            return f"max_gpus {role.max_gpus} of role {role.id}"
    role_id, _ = _bottleneck(column)
    return f"role {role_id}: no layout or number of replicas measured so far is faster"


def _role_gpus(column: Column, role: str) -> int:
    return sum(
        choice.option.gpus
        for phase in column.phases
        for pool in phase.pools
        for choice in pool.choices
        if choice.role == role
    )


def _notes(column: Column, bottleneck: str) -> tuple[str, ...]:
    notes: list[str] = []
    for phase in column.phases:
        for pool in phase.pools:
            if pool.memory_mode is MemoryMode.SLEEP:
                names = ", ".join(choice.role for choice in pool.choices)
                notes.append(
                    f"{names} put their state to host memory in turn: together it does not pay to stay"
                )
            for choice in pool.choices:
                if choice.role == bottleneck:
                    notes += choice.option.notes
    return tuple(dict.fromkeys(notes))


def _alternatives(task: Task, cluster: Cluster, gpus: int) -> tuple[Alternative, ...]:
    """Give the best column of every allowed arrangement on at most so many GPUs."""
    if len(task.gpu_roles) < 2:
        return ()
    found = []
    for arrangement in sorted(task.arrangements, key=lambda each: each.value):
        only = replace(task, arrangements=frozenset({arrangement}))
        fitting = [column for column in columns_of(only, cluster).columns if column.gpus <= gpus]
        if fitting:
            best = min(fitting, key=lambda column: (column.step_time_s.value, column.gpus))
            found.append(Alternative(arrangement.value, best.gpus, best.step_time_s.value))
    return tuple(sorted(found, key=lambda each: each.step_time_s))


def _with_one_more(problem: Problem, plan: Plan, gpu_class: str, params: SolveParams) -> OneMoreGpu | None:
    """Solve with one more GPU on a node of its own; worths stay against today's fair shares."""
    cluster = problem.cluster
    gpu = Gpu(GpuId("one-more", 0), gpu_class, cluster.memory_mib(gpu_class))
    known = next(node for node in cluster if any(each.gpu_class == gpu_class for each in node.gpus))
    per_gpu = 1.0 / max(1, len(known.gpus))
    node = Node(
        "one-more",
        (gpu,),
        cpu_cores=None if known.cpu_cores is None else known.cpu_cores * per_gpu,
        host_memory_mib=None if known.host_memory_mib is None else known.host_memory_mib * per_gpu,
    )
    larger = replace(problem, cluster=replace(cluster, nodes=(*cluster.nodes, node)))
    result = solve(larger, params, shares_of=problem)
    if result.plan is None:
        return None
    before = {running.task: running.column.gpus for running in plan.running}
    changed = tuple(
        running.task for running in result.plan.running if running.column.gpus > before.get(running.task, 0)
    )
    objective = result.plan.certificate.objective
    return OneMoreGpu(gpu_class, objective, objective - plan.certificate.objective, changed)
