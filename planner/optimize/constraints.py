"""The rows of the master problem: at most one candidate per task, and room for what is chosen.

Each row is a necessary condition for a plan, so the LP over them is a bound; what they cannot see
(fragmentation, CPU cores and host memory node by node, GPUs by id) placement checks, and returns
as a cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations.capacity import capacities
from libra_plan.planner.configurations.needs import fits_where, takes_no_more
from libra_plan.planner.optimize.objective import Candidate, TaskCandidates

__all__ = [
    "At",
    "Choice",
    "Row",
    "count_row",
    "cut_row",
    "master_rows",
    "must_row",
    "must_run_row",
    "no_good_row",
    "worth_row",
]

At = tuple[int, int]
"""(task number, candidate number)."""

Choice = dict[int, int]
"""Task number -> candidate number, running tasks only."""


@dataclass(frozen=True, slots=True)
class Row:
    """Σ coefficient · chosen ≤ limit, with a name for explanations.

    `code` is the reason a task waits for when this row leaves no room for it (`queued.py`); rows of
    the cluster itself have none.
    """

    name: str
    coefficients: dict[At, float]
    limit: float
    code: str = ""


def master_rows(tasks: Sequence[TaskCandidates], cluster: Cluster) -> list[Row]:
    """Write the rows for one candidate per task, blocks of every size, CPU cores and host memory.

    What several tasks run in jointly is a candidate of each of them.

    For block sizes that divide each other the block rows are sufficient for packing as well.
    """
    rows = [
        Row(f"one:{each.task.id}", dict.fromkeys(_ways_to_run(tasks, t), 1.0), 1.0)
        for t, each in enumerate(tasks)
        if not each.members
    ]
    return rows + _block_rows(tasks, cluster) + _host_rows(tasks, cluster)


def count_row(tasks: Sequence[TaskCandidates], level: float, at_least: int) -> Row:
    """Demand that at least so many tasks reach a normalised throughput; queued ones have 0."""
    near = level * (1 - 1e-10)  # two tasks may reach one level by different divisions
    reach = {at: -1.0 for at, entry in _every(tasks) if entry.normalised >= near}
    return Row(f"reach:{level!r}", reach, -float(at_least))


def must_run_row(name: str, tasks: Sequence[TaskCandidates], t: int) -> Row:
    """Demand that a task runs, on its own or jointly."""
    return Row(name, dict.fromkeys(_ways_to_run(tasks, t), -1.0), -1.0)


def _ways_to_run(tasks: Sequence[TaskCandidates], t: int) -> list[At]:
    return [
        (u, c)
        for u, each in enumerate(tasks)
        if u == t or t in each.members
        for c in range(len(each.candidates))
    ]


def must_row(name: str, t: int, allowed: Iterable[int], code: str = "") -> Row:
    """Demand that a task runs in one of some of its candidates."""
    return Row(name, {(t, c): -1.0 for c in allowed}, -1.0, code)


def worth_row(tasks: Sequence[TaskCandidates], at_least: float) -> Row:
    """Demand that the chosen candidates are together worth so much."""
    return Row("worth", {at: -entry.worth for at, entry in _every(tasks)}, -at_least)


def no_good_row(tasks: Sequence[TaskCandidates], choice: Choice) -> Row:
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
    return Row("no-good", {**same, **waiting}, float(len(choice) - 1))


def _every(tasks: Sequence[TaskCandidates]) -> list[tuple[At, Candidate]]:
    return [((t, c), entry) for t, each in enumerate(tasks) for c, entry in enumerate(each.candidates)]


def _block_rows(tasks: Sequence[TaskCandidates], cluster: Cluster) -> list[Row]:
    rows = []
    entries = _every(tasks)
    sizes = {(name, size) for _, entry in entries for name, size, _ in entry.configuration.blocks}
    for name, capacity in capacities(cluster).items():
        for size in sorted({1} | {size for owner, size in sizes if owner == name}):
            full = capacity.full_node_gpus
            needs = {at: float(entry.gpus_in_blocks(name, size, full)) for at, entry in entries}
            row = {at: need for at, need in needs.items() if need}
            rows.append(Row(f"gpus:{name}:{size}", row, float(size * capacity.rooms(size))))
    return rows


def _host_rows(tasks: Sequence[TaskCandidates], cluster: Cluster) -> list[Row]:
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
            rows.append(Row(name, {at: need for at, need in needs.items() if need}, limit))
    return rows


def cut_row(tasks: Sequence[TaskCandidates], conflict: Choice, cluster: Cluster) -> Row:
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
    return Row("cut", coefficients, float(len(conflict) - 1))


def _takes_as_much(more: Candidate, less: Candidate, exact: bool) -> bool:
    if exact:
        return takes_no_more(less.configuration, more.configuration)
    return all(mine >= theirs for mine, theirs in zip(more.host, less.host, strict=True))
