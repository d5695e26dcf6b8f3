"""The constraints of the master problem, and what each configuration takes of them.

A plan chooses at most one configuration of each task such that Σ amount · chosen ≤ limit for every
constraint:

- `gpus:CLASS:SIZE`: limit SIZE × the blocks of that size that the cluster's nodes hold; a configuration takes
  its GPUs of the class in blocks of SIZE and more (`gpus_in_blocks`).
- `cpu-cores`, `host-memory`: limit what all nodes have, unknown being 0; takes what its GPUs and its CPU-only
  roles need.
- `one:TASK`: limit 1; takes 1 for the configurations of the task, on its own or jointly with others.
- `budget`: limit the budget, an hour; takes what its GPUs cost an hour.
- `no-host-room`: limit 0; takes 1 where too few nodes have the cores and memory for its blocks.
- `deadline:TASK`: limit −1; takes −1 for the configurations of the task that are in time.
- `latency-first:TASK`: limit −1; takes −1 for those of the task whose step is no longer than the one found.
- `aging:TASK`: limit −1; takes −1 for those of the task.
- `tier:TASK`: limit −1; takes −1 for the one that the tiers before have settled.
- `quota:TEAM:all`, `quota:TEAM:CLASS`: limit the team's quota; takes the GPUs of a task of the team.
- `quota:TEAM:value`: limit − what the team has within its quota, less a 10⁻⁹th; takes − the value, for a task
  of the team.
- `level:TASK`: limit 0; takes − the normalised throughput, for those of the task.

A placement that a running task keeps takes the GPUs that it lies on. All of these are necessary for a plan,
so the LP over them is a bound. What they cannot see (fragmentation, CPU cores and host memory node by node,
GPUs by id) placement checks, and returns as a `cut`.

Dual prices π ≥ 0 prove a bound: Σ limit · π + Σ over tasks of max(0, max over configurations of value −
amount · π). `one:TASK` has a price only where tasks may run jointly, since the second sum covers it
otherwise: tasks that run jointly are one task more there. The value of a configuration is urgency ×
normalised throughput, × (1 − restart_s ÷ horizon_s) when a running task would move (`objective`). Under
`max-min` what is bounded is the least throughput: there a configuration has the value normalised throughput
× the price of `level:TASK`, and these prices add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from libra_plan.errors import ClusterError
from libra_plan.models.topology import Cluster, Node
from libra_plan.planner.configurations.capacity import capacities
from libra_plan.planner.configurations.needs import BlockNeed, block_needs, fits_where, takes_no_more
from libra_plan.planner.optimize.assignment import gpus_of_class
from libra_plan.planner.optimize.objective import At, Candidate, Choice, TaskCandidates
from libra_plan.planner.problem import Role

__all__ = [
    "CUT",
    "NO_ROOM",
    "At",
    "Choice",
    "Constraint",
    "base_constraints",
    "budget_constraint",
    "cut",
    "level_floor",
    "must_run",
    "no_good",
    "no_host_room",
    "run_in",
    "value_floor",
]

CUT = "cut"
"""The name of constraints that forbid what could not be placed."""

NO_ROOM = "no-host-room"
"""The name of the constraint on candidates that no state of the cluster could place."""

_TRUE_TO = 1e-9  # relative, of quotients of cores and MiB


@dataclass(frozen=True, slots=True)
class Constraint:
    """Σ coefficient · chosen ≤ limit, with a name for explanations.

    `code` is the reason a task waits for when this leaves no room for it (`unscheduled.py`); those of
    the cluster itself have none. A `strict` one must not be exceeded by any rounding.
    """

    name: str
    coefficients: dict[At, float]
    limit: float
    code: str = ""
    strict: bool = False


def base_constraints(tasks: Sequence[TaskCandidates], cluster: Cluster) -> list[Constraint]:
    """Write the rows for one candidate per task, blocks of every size, CPU cores and host memory.

    A joint configuration is a candidate of each of its tasks.

    For block sizes that divide each other the block rows are sufficient for packing as well.
    """
    rows = [
        Constraint(f"one:{each.task.id}", dict.fromkeys(_ways_to_run(tasks, t), 1.0), 1.0)
        for t, each in enumerate(tasks)
        if not each.members
    ]
    return rows + _block_rows(tasks, cluster) + _host_rows(tasks, cluster)


def level_floor(tasks: Sequence[TaskCandidates], level: float, at_least: int) -> Constraint:
    """Demand that at least so many tasks reach a normalised throughput; queued ones have 0."""
    near = level * (1 - 1e-10)  # two tasks may reach one level by different divisions
    reach = {at: -1.0 for at, entry in _every(tasks) if entry.normalised >= near}
    return Constraint(f"reach:{level!r}", reach, -float(at_least))


def must_run(name: str, tasks: Sequence[TaskCandidates], t: int) -> Constraint:
    """Demand that a task runs, on its own or jointly."""
    return Constraint(name, dict.fromkeys(_ways_to_run(tasks, t), -1.0), -1.0)


def _ways_to_run(tasks: Sequence[TaskCandidates], t: int) -> list[At]:
    return [
        (u, c)
        for u, each in enumerate(tasks)
        if u == t or t in each.members
        for c in range(len(each.candidates))
    ]


def run_in(name: str, t: int, allowed: Iterable[int], code: str = "") -> Constraint:
    """Demand that a task runs in one of some of its candidates."""
    return Constraint(name, {(t, c): -1.0 for c in allowed}, -1.0, code)


def value_floor(tasks: Sequence[TaskCandidates], at_least: float) -> Constraint:
    """Demand that the chosen candidates have at least this total value."""
    return Constraint("value", {at: -entry.value for at, entry in _every(tasks)}, -at_least)


def no_good(tasks: Sequence[TaskCandidates], choice: Choice) -> Constraint:
    """Forbid one choice, and only that: some task must run otherwise, wait, or no longer wait.

    Keeping a configuration's GPUs and moving it are not two ways to run.
    """
    same = {
        (t, c): 1.0
        for t, chosen in choice.items()
        for c, entry in enumerate(tasks[t].candidates)
        if entry.configuration.phases == tasks[t].candidates[chosen].configuration.phases
    }
    waiting = {at: -1.0 for at, _ in _every(tasks) if at[0] not in choice}
    return Constraint("no-good", {**same, **waiting}, float(len(choice) - 1))


def _every(tasks: Sequence[TaskCandidates]) -> list[tuple[At, Candidate]]:
    return [((t, c), entry) for t, each in enumerate(tasks) for c, entry in enumerate(each.candidates)]


def _block_rows(tasks: Sequence[TaskCandidates], cluster: Cluster) -> list[Constraint]:
    rows = []
    entries = _every(tasks)
    sizes = {(name, size) for _, entry in entries for name, size, _ in entry.configuration.blocks}
    for name, capacity in capacities(cluster).items():
        for size in sorted({1} | {size for owner, size in sizes if owner == name}):
            full = capacity.full_node_gpus
            needs = {at: float(entry.gpus_in_blocks(name, size, full)) for at, entry in entries}
            row = {at: need for at, need in needs.items() if need}
            rows.append(Constraint(f"gpus:{name}:{size}", row, float(size * capacity.rooms(size))))
    return rows


def _host_rows(tasks: Sequence[TaskCandidates], cluster: Cluster) -> list[Constraint]:
    """Write the rows for CPU cores and host memory; a node that does not say has none to give."""
    cores: dict[At, float] = {}
    memory: dict[At, float] = {}
    for at, entry in _every(tasks):
        of_gpus = entry.host
        env = [role for role in tasks[at[0]].task.roles if not role.on_gpu]
        cores[at] = of_gpus[0] + sum(role.cpu_cores for role in env)
        memory[at] = of_gpus[1] + sum(role.host_memory_mib for role in env)
    rows = []
    for name, needs, limit in (
        ("cpu-cores", cores, sum(node.cpu_cores or 0.0 for node in cluster)),
        ("host-memory", memory, sum(node.host_memory_mib or 0.0 for node in cluster)),
    ):
        if any(needs.values()):
            rows.append(Constraint(name, {at: need for at, need in needs.items() if need}, limit))
    return rows


def cut(tasks: Sequence[TaskCandidates], conflict: Choice, cluster: Cluster) -> Constraint:
    """Forbid a set of candidates that cannot be placed together, and all that need even more.

    A candidate without GPUs fixed by id needs at least as much as one in the conflict when its
    blocks fit only where that one's do and none of its GPUs takes fewer cores or less host memory.
    Where configurations were not compared that closely (`exact`), the sum over its GPUs decides.
    """
    full = {name: each.full_node_gpus for name, each in capacities(cluster).items()}
    coefficients: dict[At, float] = {}
    for t, c in conflict.items():
        member = tasks[t].candidates[c]
        by_id = any(role.pinned_gpus or role.excluded_gpus for role in tasks[t].task.gpu_roles)
        for other, entry in enumerate(tasks[t].candidates):
            heavier = (
                not by_id
                and member.held is None
                and entry.held is None
                and fits_where(member.configuration, entry.configuration, full)
                and _takes_as_much(entry, member, tasks[t].exact)
            )
            if other == c or heavier:
                coefficients[t, other] = 1.0
    return Constraint(CUT, coefficients, float(len(conflict) - 1))


def _takes_as_much(more: Candidate, less: Candidate, exact: bool) -> bool:
    if exact:
        return takes_no_more(less.configuration, more.configuration)
    return all(mine >= theirs for mine, theirs in zip(more.host, less.host, strict=True))


# ---------------------------------------------------------------- the budget


def budget_constraint(
    tasks: Sequence[TaskCandidates], cluster: Cluster, budget_per_hour: float
) -> Constraint:
    """Demand that the chosen configurations cost no more than the budget."""
    prices = _prices(cluster)
    costs = {
        at: sum(prices[name] * size * number for name, size, number in entry.configuration.blocks)
        for at, entry in _every(tasks)
    }
    paid = {at: cost for at, cost in costs.items() if cost}
    return Constraint("budget", paid, budget_per_hour, "budget", strict=True)


def _prices(cluster: Cluster) -> dict[str, float]:
    prices = dict(cluster.price_per_gpu_hour)
    unknown = [name for name in cluster.gpu_classes if name not in prices]
    if unknown:
        raise ClusterError(
            "a budget needs the price of every GPU class",
            got=f"no price for {', '.join(unknown)}",
            allowed=f"price_per_gpu_hour: {{{unknown[0]}: 2.50}} in the cluster file",
            way_out="add the prices to cluster.yaml, or plan without --budget",
        )
    return prices


# ---------------------------------------------------------------- CPU cores and host memory of nodes


def no_host_room(tasks: Sequence[TaskCandidates], cluster: Cluster) -> Constraint | None:
    """Forbid every candidate with a block, or a worker, that too few nodes have room for."""
    known: dict[BlockNeed, int] = {}

    def fits(need: BlockNeed) -> bool:
        kind = BlockNeed(
            need.gpu_class, need.block_gpus, 1, need.cpu_cores_per_gpu, need.host_memory_mib_per_gpu, None
        )
        if kind not in known:
            known[kind] = _rooms(cluster, kind)
        return need.blocks <= known[kind]

    forbidden = {}
    for t, each in enumerate(tasks):
        homeless = any(
            _workers(cluster, role) < role.cpu_workers for role in each.task.roles if not role.on_gpu
        )
        for c, entry in enumerate(each.candidates):
            if homeless or (entry.held is None and not all(map(fits, block_needs(entry.configuration)))):
                forbidden[t, c] = 1.0
    return Constraint(NO_ROOM, forbidden, 0.0) if forbidden else None


def _rooms(cluster: Cluster, need: BlockNeed) -> int:
    """Count the blocks of one kind that the empty nodes hold."""
    full = cluster.full_node_gpus[need.gpu_class]
    part = min(need.block_gpus, full)
    parts = sum(
        min(
            gpus_of_class(node, need.gpu_class) // part,
            _times(node, need.cpu_cores_per_gpu * part, need.host_memory_mib_per_gpu * part),
        )
        for node in cluster
    )
    return parts // (need.block_gpus // part)


def _workers(cluster: Cluster, role: Role) -> int:
    """Count the workers of a CPU-only role that the empty nodes hold."""
    each = role.cpu_cores / role.cpu_workers, role.host_memory_mib / role.cpu_workers
    return sum(min(role.cpu_workers, _times(node, *each)) for node in cluster)


def _times(node: Node, cores: float, host_mib: float) -> int:
    """Count how often a node has so many cores and so much memory."""
    most = math.inf
    for has, needs in ((node.cpu_cores or 0.0, cores), (node.host_memory_mib or 0.0, host_mib)):
        if needs > 0.0:
            most = min(most, math.floor(has / needs * (1 + _TRUE_TO) + _TRUE_TO))
    return 2**31 if most == math.inf else int(most)
