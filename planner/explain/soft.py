"""Configurations of a task that ignore its limits, each with the changes of limits that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.configurations.capacity import capacities
from libra_plan.planner.configurations.needs import gpus_needed_in_blocks
from libra_plan.planner.explain.relax import Relaxation, relaxed
from libra_plan.planner.plan import Configuration
from libra_plan.planner.problem import Problem, Task

__all__ = ["PLENTY", "Draft", "drafts_of", "without_ids"]

PLENTY = 1e12
"""More cores or MiB than anything needs."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A configuration with the changes of limits that it needs."""

    configuration: Configuration
    relaxations: tuple[Relaxation, ...]

    @property
    def total(self) -> float:
        """The least cost of its changes."""
        return sum(each.amount for each in self.relaxations)

    @property
    def rank(self) -> tuple[float, int, float]:
        """The order of drafts: cheapest, fewest limits, fastest."""
        return self.total, len(self.relaxations), self.configuration.step_time_s.value


def drafts_of(problem: Problem) -> Iterator[Draft]:
    """Yield configurations of the only task, with every set of pins and exclusions dropped in turn."""
    (task,) = problem.tasks
    by_id = [
        Relaxation("pin", task.id, role.id, float(len(role.pinned_gpus)), 0.0, 1.0)
        for role in task.gpu_roles
        if role.pinned_gpus
    ] + [
        Relaxation("exclusion", task.id, role.id, float(len(role.excluded_gpus)), 0.0, 0.0)
        for role in task.gpu_roles
        if role.excluded_gpus
    ]
    for number in range(len(by_id) + 1):
        for dropped in combinations(by_id, number):
            freed = without_ids(task, dropped)
            for configuration, grown in _soft_configurations(problem, freed):
                yield Draft(configuration, (*dropped, *grown, *_needs(problem, freed, configuration, grown)))


def without_ids(task: Task, dropped: Sequence[Relaxation]) -> Task:
    """Return the task without these pins and exclusions."""
    limits = {(each.code, each.subject) for each in dropped}
    roles = tuple(
        replace(
            role,
            pinned_gpus=frozenset() if ("pin", role.id) in limits else role.pinned_gpus,
            excluded_gpus=frozenset() if ("exclusion", role.id) in limits else role.excluded_gpus,
        )
        for role in task.roles
    )
    return replace(task, roles=roles)


def _soft_configurations(
    problem: Problem, task: Task
) -> Iterator[tuple[Configuration, tuple[Relaxation, ...]]]:
    """Yield each configuration once; on larger nodes only when no present node is large enough."""
    found = False
    for configuration in _on(problem.cluster, task):
        found = True
        yield configuration, ()
    if found:
        return
    for grown in _node_sizes(problem.cluster, task):
        larger = relaxed(problem, [grown]).cluster
        for configuration in _on(larger, task):
            yield configuration, (grown,)


def _node_sizes(cluster: Cluster, task: Task) -> list[Relaxation]:
    """List the larger node sizes that some replica needs."""
    sizes = {
        (option.gpu_class, option.layout.gpus_per_replica)
        for role in task.gpu_roles
        for option in role.options
    }
    return [
        Relaxation("node-size", task.id, name, float(full), float(size), size / full - 1.0)
        for name, size in sorted(sizes)
        if (full := cluster.full_node_gpus.get(name)) is not None and size > full
    ]


def _on(cluster: Cluster, task: Task) -> Iterator[Configuration]:
    """List the configurations of a task whose limits are kept or dropped, by falling need of memory."""
    seen: set[object] = set()
    roomy = _roomy(cluster, task)
    for variant in _variants(task):
        memory_mib = PLENTY
        while memory_mib > 0:
            configurations = configurations_of(variant, _with_memory(roomy, memory_mib)).configurations
            for configuration in configurations:
                if configuration.phases not in seen:
                    seen.add(configuration.phases)
                    yield configuration
            if not configurations:
                break
            most = max(configuration.peak_mib for configuration in configurations)
            memory_mib = most * (1 - 1e-9)
            if most <= min(cluster.memory_mib(name) for name in cluster.gpu_classes):
                break


def _variants(task: Task) -> list[Task]:
    """Return the task with its own and its roles' limits kept or dropped: each may hide a configuration."""
    free_roles = tuple(replace(role, min_gpus=1, max_gpus=None) for role in task.roles)
    free = replace(task, min_gpus=0, max_gpus=None)
    several = [task, free, replace(task, roles=free_roles), replace(free, roles=free_roles)]
    return list(dict.fromkeys(several))


def _roomy(cluster: Cluster, task: Task) -> Cluster:
    """Add nodes that are large enough for the smallest option of every role."""
    for name in cluster.gpu_classes:
        full = cluster.full_node_gpus[name]
        forms = [[o for o in role.options if o.gpu_class == name] for role in task.gpu_roles]
        least = sum(min((option.gpus for option in each), default=0) for each in forms)
        least = max(least, task.min_gpus, *(role.min_gpus for role in task.gpu_roles))
        wide = [o.layout.gpus_per_replica for each in forms for o in each]
        widest = max((size for size in wide if size % full == 0), default=full)
        block = max(full, widest)
        more = Relaxation("gpus", task.id, name, None, float(-(-least // block)), 0.0, block)
        cluster = relaxed(Problem(cluster, ()), [more]).cluster
    return cluster


def _with_memory(cluster: Cluster, memory_mib: float) -> Cluster:
    nodes = tuple(
        replace(node, gpus=tuple(replace(gpu, memory_mib=memory_mib) for gpu in node.gpus))
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


def _needs(
    problem: Problem, task: Task, configuration: Configuration, grown: Sequence[Relaxation]
) -> tuple[Relaxation, ...]:
    """Compute by how much a configuration breaks the limits that can be compared with numbers."""
    cluster = relaxed(problem, grown).cluster
    found = [*_size_limits(task, configuration), *_memory(cluster, task, configuration)]
    for name in dict.fromkeys(name for name, _, _ in configuration.blocks):
        found += _more_gpus(cluster, task, configuration, name)
    return tuple(found)


def _size_limits(task: Task, configuration: Configuration) -> Iterator[Relaxation]:
    yield from _between("task", task.id, "", configuration.gpus, task.min_gpus, task.max_gpus)
    choices = {c.role: c for phase in configuration.phases for pool in phase.pools for c in pool.choices}
    for role in task.gpu_roles:
        gpus = choices[role.id].option.gpus
        yield from _between("role", task.id, role.id, gpus, role.min_gpus, role.max_gpus)


def _between(
    what: str, task: str, role: str, gpus: int, least: int, most: int | None
) -> Iterator[Relaxation]:
    if most is not None and gpus > most:
        amount = (gpus - most) / max(1, most)
        yield Relaxation(f"{what}-max", task, role, float(most), float(gpus), amount)
    if gpus < least:
        yield Relaxation(f"{what}-min", task, role, float(least), float(gpus), (least - gpus) / least)


def _memory(cluster: Cluster, task: Task, configuration: Configuration) -> Iterator[Relaxation]:
    peaks: dict[str, float] = {}
    several = len(configuration.phases) > 1
    for phase in configuration.phases:
        for pool in phase.pools:
            peak = configuration.peak_mib if several else pool.peak_mib
            peaks[pool.gpu_class] = max(peaks.get(pool.gpu_class, 0.0), peak)
    for name, peak in peaks.items():
        now = cluster.memory_mib(name)
        if peak > now:
            yield Relaxation("memory", task.id, name, now, peak, peak / now - 1.0)


def _more_gpus(cluster: Cluster, task: Task, configuration: Configuration, name: str) -> list[Relaxation]:
    """Add blocks, the largest first, until there are enough of every size."""
    found: list[Relaxation] = []
    now = capacities(cluster)[name]
    full = now.full_node_gpus
    gpus = now.gpus
    for size in sorted(
        {1} | {size for owner, size, _ in configuration.blocks if owner == name}, reverse=True
    ):
        needed = gpus_needed_in_blocks(configuration, name, size, full)
        short = -(-needed // size) - capacities(cluster)[name].rooms(size)
        if short > 0:
            amount = short * size / gpus
            found.append(Relaxation("gpus", task.id, name, float(gpus), float(short), amount, size))
            cluster = relaxed(Problem(cluster, ()), [found[-1]]).cluster
    return found
