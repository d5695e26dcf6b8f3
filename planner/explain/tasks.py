"""What limits a running task, and how else it could run on as many GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.configurations.phases import coupled_time_s
from libra_plan.planner.plan import Configuration, JointRun, MemoryMode, Pool, RunningTask
from libra_plan.planner.problem import CouplingKind, Problem, Task

__all__ = ["Alternative", "TaskExplanation", "explain_task"]

_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best way to run the task in one arrangement on no more GPUs than it has now."""

    arrangement: str
    gpus: int
    step_time_s: float


@dataclass(frozen=True, slots=True)
class TaskExplanation:
    """What limits one running task.

    `bottleneck` is the role with the largest share of the step, `share` that share. `binding` says
    which limit keeps the task from being faster; `one_more_gpu_gain` is the relative gain in
    throughput it would have with the next larger configuration, which needs `gpus_needed` more GPUs (None:
    no larger configuration is faster).
    """

    task: str
    bottleneck: str
    share: float
    binding: str
    one_more_gpu_gain: float | None
    gpus_needed: int | None
    notes: tuple[str, ...]
    alternatives: tuple[Alternative, ...]


def explain_task(problem: Problem, running: RunningTask, joint: Sequence[JointRun] = ()) -> TaskExplanation:
    """Explain what limits one running task and how else it could run; `joint` are the plan's joint runs."""
    task = problem.task_of[running.task]
    configurations = configurations_of(task, problem.cluster).configurations
    role, share = running.configuration.bottleneck
    run = next((run for run in joint if task.id in run.tasks), None)
    larger = None if run is not None else _next_faster(configurations, running.configuration)
    binding = _binding(task, running.configuration, larger, len(problem.cluster.gpus))
    return TaskExplanation(
        task=running.task,
        bottleneck=role,
        share=share,
        binding=binding if run is None else _shares(task, run),
        one_more_gpu_gain=None
        if larger is None
        else larger.steps_per_s / running.configuration.steps_per_s - 1.0,
        gpus_needed=None if larger is None else larger.gpus - running.configuration.gpus,
        notes=(*_staleness(task, running.configuration), *_notes(running.configuration, role)),
        alternatives=_alternatives(task, problem.cluster, running.configuration.gpus),
    )


def _shares(task: Task, run: JointRun) -> str:
    """Return a note on the tasks that share their step with this one."""
    others = " and ".join(name for name in run.tasks if name != task.id)
    return f"turns: it shares its pools with {others}, and a round has one step of each"


def _next_faster(configurations: Sequence[Configuration], now: Configuration) -> Configuration | None:
    """Return the smallest configuration that has more GPUs and is faster."""
    larger = [
        configuration
        for configuration in configurations
        if configuration.gpus > now.gpus
        and configuration.step_time_s.value < now.step_time_s.value * (1 - _SAME)
    ]
    return min(
        larger, key=lambda configuration: (configuration.gpus, configuration.step_time_s.value), default=None
    )


def _binding(task: Task, configuration: Configuration, larger: Configuration | None, gpus: int) -> str:
    """Return the limit that keeps the task from being faster, in words."""
    if larger is not None:
        return f"GPUs: {larger.gpus - configuration.gpus} more would make it faster"
    if task.max_gpus is not None and configuration.gpus >= task.max_gpus:
        return f"max_gpus {task.max_gpus} of the task"
    for role in task.gpu_roles:
        if role.max_gpus is not None and _role_gpus(configuration, role.id) >= role.max_gpus:
            return f"max_gpus {role.max_gpus} of role {role.id}"
    role_id, _ = configuration.bottleneck
    options = next(role.options for role in task.gpu_roles if role.id == role_id)
    most = max(option.gpus for option in options)
    smallest = min(option.layout.gpus_per_replica for option in options)
    if _role_gpus(configuration, role_id) == most and max(configuration.gpus, most) + smallest > gpus:
        return f"GPUs: the cluster has no more than {gpus}"
    return f"role {role_id}: no layout or number of replicas measured so far is faster"


def _staleness(task: Task, configuration: Configuration) -> tuple[str, ...]:
    """Return a note if the staleness bound limits the step, with the gain from one more step."""
    if task.coupling.kind is not CouplingKind.ASYNC or len(configuration.phases) > 1:
        return ()
    pools = [(_pool_s(pool), pool.choices[0].option.stream) for pool in configuration.phases[0].pools]
    steps = task.coupling.staleness
    now, longest = coupled_time_s(pools, task.coupling), max(seconds for seconds, _ in pools)
    if now <= longest * (1 + _SAME):
        return ()
    more = coupled_time_s(pools, replace(task.coupling, staleness=steps + 1))
    return (
        f"staleness_steps {steps} sets the pace: with no more than {steps + 1} steps' samples on their way "
        f"a step takes {now:.1f} s, with one more {more:.1f} s; the slowest pool takes {longest:.1f} s",
    )


def _pool_s(pool: Pool) -> float:
    switched = pool.memory_mode is MemoryMode.SLEEP
    return sum(each.option.time_s.value + each.option.switch_s * switched for each in pool.choices)


def _role_gpus(configuration: Configuration, role: str) -> int:
    return sum(
        choice.option.gpus
        for phase in configuration.phases
        for pool in phase.pools
        for choice in pool.choices
        if choice.role == role
    )


def _notes(configuration: Configuration, bottleneck: str) -> tuple[str, ...]:
    notes: list[str] = []
    for phase in configuration.phases:
        for pool in phase.pools:
            if pool.memory_mode is MemoryMode.SLEEP:
                names = [choice.role for choice in pool.choices]
                puts = "puts its state" if len(names) == 1 else "put their state"
                notes.append(
                    f"{', '.join(names)} {puts} to host memory in turn: together it does not pay to stay"
                )
            for choice in pool.choices:
                if choice.role == bottleneck:
                    notes += choice.option.notes
    return tuple(dict.fromkeys(notes))


def _alternatives(task: Task, cluster: Cluster, gpus: int) -> tuple[Alternative, ...]:
    """Return the best configuration of every allowed arrangement on at most so many GPUs."""
    if len(task.gpu_roles) < 2:
        return ()
    found = []
    for arrangement in sorted(task.arrangements, key=lambda each: each.value):
        only = replace(task, arrangements=frozenset({arrangement}))
        fitting = [
            configuration
            for configuration in configurations_of(only, cluster).configurations
            if configuration.gpus <= gpus
        ]
        if fitting:
            best = min(
                fitting, key=lambda configuration: (configuration.step_time_s.value, configuration.gpus)
            )
            found.append(Alternative(arrangement.value, best.gpus, best.step_time_s.value))
    return tuple(sorted(found, key=lambda each: each.step_time_s))
