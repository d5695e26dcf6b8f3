"""The value of a configuration: throughput relative to the task's weighted fair share, less switching.

normalised = throughput ÷ throughput of the task alone on its weighted fair share of the GPUs
value      = weight · normalised · (1 − restart_s ÷ horizon_s when the task's placement changes)

What is kept of a task that moves is at least `LEAST_KEPT`: one whose GPUs are gone starts again.

A queued task's weight counts (1 + waited_s ÷ aging_s) times, so that nothing waits for ever; its
fair share stays that of the plain weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.configurations import ConfigurationTable, configurations_of
from libra_plan.planner.configurations.capacity import ClassCapacity, block_rooms, capacities
from libra_plan.planner.configurations.known import KnownConfigurations
from libra_plan.planner.configurations.needs import block_needs, gpus_needed_in_blocks, host_needs
from libra_plan.planner.optimize.incumbent import held_configurations
from libra_plan.planner.optimize.joint import held_jointly, joint_tasks, shares_now
from libra_plan.planner.plan import Configuration
from libra_plan.planner.problem import LEAST_KEPT, IncumbentTask, Problem, Role, Task

__all__ = [
    "At",
    "Candidate",
    "Choice",
    "PricedTask",
    "TaskCandidates",
    "candidates_of",
    "cost_per_hour",
    "fair_share_rate",
    "host_of_held",
    "hosts_may_bind",
    "plan_value",
    "priced_tasks",
    "throughputs",
    "urgency",
    "values_of",
]

At = tuple[int, int]
"""(task number, candidate number)."""

Choice = dict[int, int]
"""Task number -> candidate number, running tasks only."""


def values_of(tasks: Sequence[TaskCandidates]) -> dict[At, float]:
    """Map every candidate to its value in the objective."""
    return {(t, c): entry.value for t, each in enumerate(tasks) for c, entry in enumerate(each.candidates)}


def plan_value(tasks: Sequence[TaskCandidates], choice: Choice) -> float:
    """Return the sum of the values of what is chosen."""
    return sum(tasks[t].candidates[c].value for t, c in choice.items())


def throughputs(tasks: Sequence[TaskCandidates], choice: Choice) -> list[float]:
    """List the normalised throughput of every task that can run, lowest first; a waiting task has 0."""
    return sorted(
        each.candidates[choice[t]].normalised if t in choice else 0.0
        for t, each in enumerate(tasks)
        if each.candidates
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration as the master sees it. `held` is set when it keeps the GPUs the task runs on.

    It then takes exactly those: `held_gpus` lists (GPU class, GPUs, span) node by node.
    """

    configuration: Configuration
    normalised: float
    value: float
    held: IncumbentTask | None = None
    held_gpus: tuple[tuple[str, int, str], ...] = ()
    held_host: tuple[float, float] = (0.0, 0.0)

    def gpus_in_blocks(self, gpu_class: str, at_least: int, full_node_gpus: int) -> int:
        """Count the GPUs it takes in blocks of at least one size."""
        if self.held is None:
            return gpus_needed_in_blocks(self.configuration, gpu_class, at_least, full_node_gpus)
        here = [gpus for name, gpus, _ in self.held_gpus if name == gpu_class]
        spans = [span for name, _, span in self.held_gpus if name == gpu_class]
        return at_least * block_rooms(here, at_least, full_node_gpus, spans)

    @property
    def host(self) -> tuple[float, float]:
        """Return the CPU cores and the host memory (MiB) that its GPUs take."""
        return host_needs(self.configuration) if self.held is None else self.held_host

    @property
    def moved_mib(self) -> float:
        """Return the state to be moved when it is chosen, MiB (0 when it keeps its GPUs)."""
        if self.held is not None:
            return 0.0
        return sum(
            (choice.option.static_mib + choice.option.offloaded_host_mib) * choice.option.gpus
            for phase in self.configuration.phases
            for pool in phase.pools
            for choice in pool.choices
        )


@dataclass(frozen=True, slots=True)
class TaskCandidates:
    """A task with all its candidates."""

    task: Task
    candidates: tuple[Candidate, ...]
    reference_steps_per_s: float | None
    dropped: int
    running: bool
    exact: bool = True
    """No configuration that was dropped could be placed where those that beat it cannot."""
    members: tuple[int, ...] = ()
    """Numbers of the tasks that run jointly in its candidates; empty for a task on its own."""


def urgency(problem: Problem, task: Task, *, running: bool) -> float:
    """Return the weight with what waiting adds; a running task has not waited."""
    if problem.aging_s is None or running:
        return task.weight
    return task.weight * (1.0 + task.waited_s / problem.aging_s)


def fair_share_rate(configurations: ConfigurationTable, share: float) -> float | None:
    """Return the best throughput on a fair share, steps/s; None when the task has no configuration.

    A task that does not run on its share at all is compared with the smallest number of GPUs it
    runs on, scaled down to the share.
    """
    if not len(configurations):
        return None
    within = configurations.seconds[configurations.gpus <= share + 1e-9]
    if len(within):
        return float(1.0 / within.min())
    smallest = np.lexsort((configurations.seconds, configurations.gpus))[0]
    return float(share / configurations.gpus[smallest] / configurations.seconds[smallest])


@dataclass(frozen=True, slots=True)
class PricedTask:
    """A task with all its configurations, none of them built yet, and the placements it may keep.

    `stay` is the share of the horizon that is left after a move, `urgency` its weight with aging.
    """

    task: Task
    table: ConfigurationTable
    reference: float | None
    held: tuple[Candidate, ...]
    stay: float
    running: bool
    urgency: float
    members: tuple[int, ...] = ()

    def __len__(self) -> int:
        return 0 if self.reference is None else len(self.table) + len(self.held)

    def candidates(self, numbers: Sequence[int] | None = None) -> TaskCandidates:
        """Build candidates: all, kept placements first, or those of some numbers in their order.

        Kept placements are numbered after the configurations.
        """
        if self.reference is None:
            found: tuple[Candidate, ...] = ()
        elif numbers is None:
            found = (*self.held, *(self._moved(number) for number in range(len(self.table))))
        else:
            found = tuple(self._candidate(number) for number in numbers)
        exact = numbers is None and self.table.exact
        return TaskCandidates(
            self.task, found, self.reference, self.table.dropped, self.running, exact, self.members
        )

    @property
    def value_per_throughput(self) -> float:
        """Return the value of a normalised throughput of 1 that is reached after a move."""
        return self.urgency * self.stay

    @property
    def values(self) -> NDArray[np.float64]:
        """Return the value of every configuration, then of the placements that it may keep."""
        if self.reference is None:
            return np.zeros(0)
        moved = self.value_per_throughput / self.table.seconds / self.reference
        return np.concatenate((moved, [entry.value for entry in self.held]))

    def _candidate(self, number: int) -> Candidate:
        kept = number - len(self.table)
        return self.held[kept] if kept >= 0 else self._moved(number)

    def _moved(self, number: int) -> Candidate:
        configuration = self.table.configuration(number)
        normalised = configuration.steps_per_s / (self.reference or 1.0)
        return Candidate(configuration, normalised, self.value_per_throughput * normalised)


def priced_tasks(
    problem: Problem,
    shares_of: Problem,
    among: Iterable[str] | None = None,
    known: KnownConfigurations | None = None,
) -> list[PricedTask]:
    """Generate every task's configurations and price what it holds; alike tasks are generated once.

    Fair shares are those of `shares_of`, nearly always the problem itself. `among` names the tasks
    that are priced, all unless given. Tasks that may run jointly come last, as one each. `known` holds
    configurations that were made before.
    """
    held_tasks = {held.task: held for held in problem.running}
    bind = hosts_may_bind(problem)
    known = KnownConfigurations() if known is None else known
    priced = []
    wanted = None if among is None else set(among)
    rooms = known.rooms(problem.cluster)
    gpus_per_weight = len(shares_of.cluster.gpus) / sum(task.weight for task in shares_of.tasks)
    for task in problem.tasks:
        if wanted is not None and task.id not in wanted:
            continue
        configurations = known.of(task, problem.cluster, hosts_bind=bind)
        share = gpus_per_weight * task.weight
        reference = None
        if shares_of is not problem:
            there = shares_of.task_of.get(task.id, task)
            configurations_there = known.of(there, shares_of.cluster, hosts_bind=bind)
            reference = fair_share_rate(configurations_there, share)
        if reference is None:  # a task that cannot run there is compared with itself
            reference = fair_share_rate(configurations, share)
        held = held_tasks.get(task.id)
        stay = 1.0 if held is None else max(LEAST_KEPT, 1.0 - task.restart_s / problem.horizon_s)
        kept = () if shares_now(problem, task.id) else _kept(problem, task, held, reference, rooms)
        weight = urgency(problem, task, running=held is not None)
        priced.append(PricedTask(task, configurations, reference, kept, stay, held is not None, weight))
    return priced + _priced_jointly(problem, priced, bind)


def _priced_jointly(problem: Problem, priced: Sequence[PricedTask], bind: bool) -> list[PricedTask]:
    """Price the tasks that may run jointly: their steps take equally long, so their values add up.

    The value of one step per second is Σ urgency · stay ÷ reference of the members.
    """
    numbers = {each.task.id: number for number, each in enumerate(priced)}
    found = []
    for joint in joint_tasks(problem, numbers):
        members = tuple(numbers[member.id] for member in joint.members)
        parts = [(priced[t], priced[t].reference) for t in members]
        known = [(each, reference) for each, reference in parts if reference is not None]
        if len(known) < len(parts):
            continue  # one of them cannot run at all
        table = configurations_of(joint, problem.cluster, hosts_bind=bind)
        per_step = sum(each.urgency * each.stay / reference for each, reference in known)
        kept_per_step = sum(each.task.weight / reference for each, reference in known)
        held = held_jointly(problem, joint)
        kept = [
            replace(entry, value=entry.normalised)
            for entry in _kept(problem, joint, held, 1.0 / kept_per_step, capacities(problem.cluster))
        ]
        running = any(each.running for each, _ in known)
        found.append(PricedTask(joint, table, 1.0 / per_step, tuple(kept), 1.0, running, 1.0, members))
    return found


def candidates_of(problem: Problem, shares_of: Problem) -> list[TaskCandidates]:
    """Build every candidate of every task."""
    return [each.candidates() for each in priced_tasks(problem, shares_of)]


def _kept(
    problem: Problem,
    task: Task,
    held: IncumbentTask | None,
    reference: float | None,
    rooms: Mapping[str, ClassCapacity],
) -> tuple[Candidate, ...]:
    """Price the placements a running task may keep."""
    if held is None or reference is None:
        return ()
    found = []
    for configuration in held_configurations(problem, task, held, rooms):
        normalised = configuration.steps_per_s / reference
        on, host = _taken(problem.cluster, configuration, held)
        found.append(Candidate(configuration, normalised, task.weight * normalised, held, on, host))
    return tuple(found)


def hosts_may_bind(problem: Problem) -> bool:
    """Return whether any node could run out of CPU cores or host memory, whatever is put on it."""
    cores = max((sum(role.cpu_cores_per_gpu for role in task.gpu_roles) for task in problem.tasks), default=0)
    host_mib = max((sum(map(_most_host_mib, task.gpu_roles)) for task in problem.tasks), default=0)
    workers = [role for task in problem.tasks for role in task.roles if not role.on_gpu]
    workers_cores = sum(role.cpu_cores for role in workers)
    workers_mib = sum(role.host_memory_mib for role in workers)
    return any(
        cores * len(node.gpus) + workers_cores > (node.cpu_cores or 0.0)
        or host_mib * len(node.gpus) + workers_mib > (node.host_memory_mib or 0.0)
        for node in problem.cluster
    )


def _most_host_mib(role: Role) -> float:
    return role.host_memory_mib_per_gpu + max(
        (option.host_static_mib + option.offloaded_host_mib for option in role.options), default=0.0
    )


def _taken(
    cluster: Cluster, configuration: Configuration, held: IncumbentTask | None
) -> tuple[tuple[tuple[str, int, str], ...], tuple[float, float]]:
    """Count the GPUs a kept task takes node by node, and the cores and host memory of all of them."""
    per_gpu = host_of_held(configuration, held) if held else {}
    nodes = Counter((cluster.gpus[gpu].gpu_class, gpu.node) for gpu in per_gpu)
    cores, host_mib = (sum(need[at] for need in per_gpu.values()) for at in (0, 1))
    taken = tuple((name, gpus, cluster.span_of[node]) for (name, node), gpus in nodes.items())
    return taken, (cores, host_mib)


def host_of_held(configuration: Configuration, held: IncumbentTask) -> dict[GpuId, tuple[float, float]]:
    """Map each GPU a kept task holds to the CPU cores and host memory (MiB) it takes on its node."""
    gpus = {role.role: [gpu for replica in role.replicas for gpu in replica] for role in held.roles}
    found: dict[GpuId, tuple[float, float]] = {}
    for need in block_needs(configuration):
        names = (
            gpus if need.pool is None else [c.role for c in configuration.phases[0].pools[need.pool].choices]
        )
        for name in names:
            each = (need.cpu_cores_per_gpu, need.host_memory_mib_per_gpu)
            found.update(dict.fromkeys(gpus[name], each))
    return found


def cost_per_hour(cluster: Cluster, configurations: Iterable[Configuration]) -> float | None:
    """Add up the price of all GPUs that configurations hold; None when one of their classes has no price."""
    prices = dict(cluster.price_per_gpu_hour)
    total = 0.0
    for configuration in configurations:
        for gpu_class, size, number in configuration.blocks:
            if gpu_class not in prices:
                return None
            total += prices[gpu_class] * size * number
    return total
