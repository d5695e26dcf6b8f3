"""Why a task cannot run, and the smallest change of limits that would let it run.

The search first ignores every limit: it makes configurations without limits, pins and exclusions, for GPUs
with plenty of memory and a cluster with free GPUs. Arithmetic then shows by how much each configuration
breaks its limits, which is a lower bound on the cost of allowing it. The search places them in the order
of this bound, and finds the CPU cores and host memory that they need by bisection, until no other
configuration could be cheaper. The cost is the sum of relative changes; among equal costs the fewest limits
win.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.explain.relax import Relaxation, relaxed
from libra_plan.planner.explain.soft import PLENTY, Draft, drafts_of, without_ids
from libra_plan.planner.optimize.assignment import UndecidedError
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.objective import Candidate, TaskCandidates
from libra_plan.planner.optimize.placement import TaskPlacement, place
from libra_plan.planner.plan import Configuration, Pool
from libra_plan.planner.problem import Problem, Task

__all__ = ["CannotRun", "Way", "cannot_run", "runs_alone"]

_TRIED = 300  # configurations that are placed before the search gives up its proof
_OTHERS = 40  # configurations that are placed to find other ways than the cheapest
_WAYS = 3
_PLACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Way:
    """Limits that must change together, and how the task would then run."""

    relaxations: tuple[Relaxation, ...]
    total: float
    gpus: int
    step_time_s: float


@dataclass(frozen=True, slots=True)
class CannotRun:
    """A task that cannot run even alone, with the cheapest ways to let it run.

    `proven`: no way is cheaper than the first one. `refused` lists why roles could not be priced at
    all; changing limits does not help then.
    """

    task: str
    ways: tuple[Way, ...]
    proven: bool
    refused: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Which limits to change, the cheapest way first."""
        if self.refused:
            return f"{self.task} cannot be priced: " + "; ".join(self.refused)
        if not self.ways:
            return f"{self.task} cannot run whatever gives way: no arrangement has forms for all roles"
        ways = "; or ".join(" and ".join(each.text for each in way.relaxations) for way in self.ways)
        return f"{self.task} could run if you {ways}"


def cannot_run(problem: Problem, task: Task, in_time: Callable[[], bool] = lambda: True) -> CannotRun:
    """Find the smallest change that would let a task run if it had the whole cluster.

    Once `in_time` returns False, the search returns the first way that it finds, without a proof.
    """
    refused = list(_refused(problem.cluster, task))
    if refused:
        return CannotRun(task.id, (), True, tuple(refused))
    alone = replace(problem, tasks=(task,), running=())
    drafts = sorted(drafts_of(alone), key=lambda draft: draft.rank)
    best: dict[tuple[tuple[str, str], ...], Way] = {}
    for tried, draft in enumerate(drafts):
        totals = sorted(way.total for way in best.values())
        enough = len(totals) >= _WAYS and draft.total >= totals[_WAYS - 1]
        if enough or (totals and draft.total >= totals[0] and tried >= _OTHERS):
            break
        if tried == _TRIED or (totals and not in_time()):
            return CannotRun(task.id, _few(best), False)
        way = _placed(alone, draft, in_time)
        if way is None:
            continue
        limits = tuple(sorted((each.code, each.subject) for each in way.relaxations))
        if limits in best and way.total >= best[limits].total:
            continue
        changed = relaxed(alone, way.relaxations)
        if runs_alone(changed, changed.tasks[0]):  # else a faster configuration hides this one there
            best[limits] = way
    return CannotRun(task.id, _few(best), in_time())


def _refused(cluster: Cluster, task: Task) -> Iterator[str]:
    """List the roles that have no price, or none on the GPUs of the cluster: no limit can help them."""
    for role in task.gpu_roles:
        classes = {option.gpu_class for option in role.options}
        if not classes:
            yield f"role {role.id}: {role.refusals[0] if role.refusals else 'no layout was given'}"
        elif not classes & set(cluster.gpu_classes):
            has = ", ".join(cluster.gpu_classes) or "no GPU"
            yield f"role {role.id}: measured on {', '.join(sorted(classes))}, the cluster has {has}"


def _few(best: dict[tuple[tuple[str, str], ...], Way]) -> tuple[Way, ...]:
    """Pick the cheapest ways, without those that change all that a cheaper one changes, and more."""
    picked: list[tuple[set[tuple[str, str]], Way]] = []
    for limits, way in sorted(best.items(), key=lambda each: (each[1].total, len(each[0]))):
        if not any(cheaper <= set(limits) for cheaper, _ in picked):
            picked.append((set(limits), way))
    return tuple(way for _, way in picked[:_WAYS])


def _placed(problem: Problem, draft: Draft, in_time: Callable[[], bool]) -> Way | None:
    """Place a draft, with the cores, the host memory and the excluded GPUs that it needs."""
    wider = relaxed(problem, [each for each in draft.relaxations if each.code != "exclusion"])
    open_ids = [each for each in draft.relaxations if each.code == "exclusion"]
    (task,) = wider.tasks
    wider = replace(wider, tasks=(without_ids(task, open_ids),))
    found = list(draft.relaxations)
    if _try(wider, draft.configuration) is None:
        plenty = _with_hosts(wider.cluster, PLENTY, PLENTY)
        if _try(replace(wider, cluster=plenty), draft.configuration) is None:
            return None
        for code in ("cpu-cores", "host-memory"):
            more = _least_more(wider, draft.configuration, code, in_time)
            if more is not None:
                found.append(more)
                wider = relaxed(wider, [more])
    if _try(wider, draft.configuration) is None:  # together they need more than each alone
        return None
    given = _given_back(wider, task, [each.subject for each in open_ids], draft.configuration)
    kept = (*(each for each in found if each.code != "exclusion"), *given)
    total = sum(each.amount for each in kept)
    return Way(kept, total, draft.configuration.gpus, draft.configuration.step_time_s.value)


def _given_back(
    problem: Problem, limited: Task, roles: Sequence[str], configuration: Configuration
) -> list[Relaxation]:
    """Find the fewest excluded GPUs that each role must be allowed to use.

    Phases share their GPUs, so their roles need all exclusions lifted.
    """
    found = []
    excluded = {role.id: role.excluded_gpus for role in limited.gpu_roles}
    for role in roles:
        given = excluded[role]
        if len(configuration.phases) == 1:
            (task,) = problem.tasks
            problem, given = _fewest_given(problem, task, role, excluded[role], configuration)
        if given:
            now, amount = len(excluded[role]), len(given) / len(excluded[role])
            names = tuple(sorted(given))
            found.append(
                Relaxation(
                    "exclusion", limited.id, role, float(now), float(len(names)), amount, allowed=names
                )
            )
    return found


def _fewest_given(
    problem: Problem, task: Task, role: str, excluded: frozenset[GpuId], configuration: Configuration
) -> tuple[Problem, frozenset[GpuId]]:
    """Restore all but the fewest possible exclusions of a role; return the problem and those few."""
    (beside,) = ({c.role for c in pool.choices} for pool in configuration.phases[0].pools if _has(pool, role))

    def excluding(gpus: frozenset[GpuId]) -> Problem:
        roles = tuple(replace(r, excluded_gpus=gpus) if r.id == role else r for r in task.roles)
        return replace(problem, tasks=(replace(task, roles=roles),))

    def taken(allowed: frozenset[GpuId]) -> frozenset[GpuId] | None:
        placement = _try(excluding(excluded - allowed), configuration)
        if placement is None:
            return None
        return excluded & {gpu for each in placement.roles if each.role in beside for gpu in each.gpus}

    given = taken(excluded) or frozenset()
    for gpu in sorted(given):
        fewer = taken(given - {gpu})
        given = given if fewer is None else fewer
    return excluding(excluded - given), given


def _has(pool: Pool, role: str) -> bool:
    return any(choice.role == role for choice in pool.choices)


def _try(problem: Problem, configuration: Configuration) -> TaskPlacement | None:
    (task,) = problem.tasks
    only = TaskCandidates(task, (Candidate(configuration, 1.0, 1.0),), None, 0, False)
    try:
        placed = place(problem, [only], {0: 0}, SolveParams(), limit_s=_PLACE_S)
    except UndecidedError:
        return None  # whether it fits was not found out, and an explanation needs only some way
    return None if placed is None else placed[0]


def _with_hosts(cluster: Cluster, cores: float | None, host_mib: float | None) -> Cluster:
    """Return the problem with other cores and host memory on every node; None leaves them as they are."""
    nodes = tuple(
        replace(
            node,
            cpu_cores=node.cpu_cores if cores is None else cores,
            host_memory_mib=node.host_memory_mib if host_mib is None else host_mib,
        )
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


def _least_more(
    problem: Problem, configuration: Configuration, code: str, in_time: Callable[[], bool]
) -> Relaxation | None:
    """Find by bisection the least whole number of cores or MiB to add to every node."""
    (task,) = problem.tasks
    cores = code == "cpu-cores"
    stated = [node.cpu_cores if cores else node.host_memory_mib for node in problem.cluster]
    largest = max((value for value in stated if value is not None), default=None)

    def with_more(more: int) -> Relaxation:
        amount = more / largest if largest else float(more > 0)
        return Relaxation(code, task.id, "", largest, (largest or 0.0) + more, amount)

    def enough(more: int) -> bool:
        cluster = relaxed(problem, [with_more(more)]).cluster if more else problem.cluster
        cluster = _with_hosts(cluster, None, PLENTY) if cores else cluster
        return _try(replace(problem, cluster=cluster), configuration) is not None

    if enough(0):
        return None
    high = 1
    while not enough(high) and high < PLENTY:
        high *= 2
    low = high // 2
    while high - low > 1 and in_time():
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return with_more(high)


def runs_alone(problem: Problem, task: Task) -> bool:
    """Whether a task could run if it had the whole cluster."""
    alone = replace(problem, tasks=(task,), running=())
    return any(
        _try(alone, configuration) is not None
        for configuration in configurations_of(task, problem.cluster).configurations
    )
