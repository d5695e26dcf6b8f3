"""Check a plan against its problem without the solver's help.

Everything that follows from the problem is computed again: limits, memory, step times and the
objective, from the options, GPU by GPU. No model builder or solver is used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.plan import PlacedRole, Plan, Pool, RunningTask
from libra_plan.planner.problem import Problem, Task
from libra_plan.planner.verify.blocks import node_sizes
from libra_plan.planner.verify.configuration import check_form, check_limits, check_price
from libra_plan.planner.verify.joint import Whole, check_joint, check_whole, joint_times, wholes
from libra_plan.planner.verify.proof import UNKNOWN, Proof, check_proof
from libra_plan.planner.verify.rules import Violation, host_per_gpu, role_of, turns_of

__all__ = ["Verdict", "Violation", "check_plan", "violations_of"]

ROOM = 1e-6  # cores or MiB a sum may be over by rounding

Found = Iterator[Violation]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rules of the problem that a plan breaks (none: it is valid), and what of its bound is proven."""

    violations: tuple[Violation, ...]
    proof: Proof


def violations_of(problem: Problem, plan: Plan) -> list[Violation]:
    """List every rule of the problem that the plan breaks; an empty list means that the plan is valid."""
    return list(check_plan(problem, plan).violations)


def check_plan(problem: Problem, plan: Plan) -> Verdict:
    """Check a plan against its problem, and recompute the bound that its certificate claims."""
    roster = [*_roster(problem, plan), *check_joint(problem, plan)]
    if roster and plan.joint:
        return Verdict(tuple(roster), UNKNOWN)
    together = wholes(problem, plan)
    jointly = {name for whole in together for name in whole.run.tasks}
    apart = [
        (problem.task_of[each.task], each)
        for each in plan.running
        if each.task in problem.task_of and each.task not in jointly
    ]
    holders = [*apart, *((whole.task, whole.running) for whole in together)]
    shapes = [violation for task, running in holders for violation in _shape(task, running)]
    if roster or shapes:  # the checks below look up tasks, roles and GPUs of the plan
        return Verdict((*roster, *shapes), UNKNOWN)
    found: list[Violation] = list(_one_task_per_gpu(running for _, running in holders))
    for task, running in holders:
        found += _placement(problem.cluster, task, running)
        found += check_limits(task, running)
    sizes = node_sizes(problem.cluster)
    for task, running in apart:
        found += check_form(task, running.configuration)
        found += check_price(problem.cluster, task, running, sizes)
    for whole in together:
        found += _jointly(problem, plan, whole, sizes)
    found += _host(problem.cluster, holders)
    untrue, proof = check_proof(problem, plan)
    found += untrue
    return Verdict(tuple(found), UNKNOWN if found else proof)


def _jointly(problem: Problem, plan: Plan, whole: Whole, sizes: Mapping[str, int]) -> Found:
    own = {each.task: each for each in plan.running}
    yield from check_whole(whole, [own[name] for name in whole.run.tasks])
    yield from check_price(problem.cluster, whole.task, whole.running, sizes, joint_times(whole))


# ---------------------------------------------------------------- who runs


def _roster(problem: Problem, plan: Plan) -> Found:
    """Check that every task runs or waits, once; running tasks keep the problem's order."""
    named = [task.task for task in plan.running] + [task.task for task in plan.queued]
    for task, times in Counter(named).items():
        if task not in problem.task_of:
            yield Violation("unknown-task", "the problem has no such task", task)
        elif times > 1:
            yield Violation("task-twice", f"is listed {times} times", task)
    for task in problem.task_of:
        if task not in named:
            yield Violation("task-missing", "is neither running nor queued", task)
    order = [task.id for task in problem.tasks]
    running = [task.task for task in plan.running if task.task in problem.task_of]
    if running != sorted(running, key=order.index):
        yield Violation("task-order", "running tasks are not in the problem's order", ", ".join(running))
    for queued in plan.queued:
        if not queued.code or not queued.reason:
            yield Violation("no-reason", "waits without a code and a reason", queued.task)


def _shape(task: Task, running: RunningTask) -> Found:
    """Check that the configuration has each GPU role once, in options the problem offers."""
    configuration = running.configuration
    if configuration.task != task.id:
        yield Violation("wrong-configuration", f"has a configuration of task {configuration.task}", task.id)
    choices = [choice for phase in configuration.phases for pool in phase.pools for choice in pool.choices]
    expected = Counter(role.id for role in task.gpu_roles)
    for name, listed in (("configuration", choices), ("placement", running.roles)):
        if Counter(item.role for item in listed) != expected:
            yield Violation("roles", f"its {name} does not have each GPU role once", task.id)
    options = {role.id: role.options for role in task.roles}
    chosen = {choice.role: choice for choice in choices}
    for choice in choices:
        if choice.option not in options.get(choice.role, ()):
            yield Violation("unknown-option", "the problem has no such option", f"{task.id}.{choice.role}")
    for placed in running.roles:
        if placed.choice != chosen.get(placed.role):
            yield Violation(
                "choice", "is placed in another option than its configuration says", _at(task, placed)
            )
    if not all(phase.pools and all(pool.choices for pool in phase.pools) for phase in configuration.phases):
        yield Violation("empty-pool", "has a phase or pool with nothing in it", task.id)
    elif not configuration.phases:
        yield Violation("empty-pool", "has a configuration without phases", task.id)


def _at(task: Task, placed: PlacedRole) -> str:
    return f"{task.id}.{placed.role}"


# ---------------------------------------------------------------- GPUs


def _one_task_per_gpu(plan: Iterable[RunningTask]) -> Found:
    holders: defaultdict[GpuId, list[str]] = defaultdict(list)
    for running in plan:
        for gpu in running.gpus:
            holders[gpu].append(running.task)
    for gpu, tasks in holders.items():
        if len(tasks) > 1:
            yield Violation("gpu-shared", f"is given to {' and '.join(tasks)}", str(gpu))


def _placement(cluster: Cluster, task: Task, running: RunningTask) -> Found:
    """Check that replicas are as many and as large as chosen, inside nodes or filling them."""
    for placed in running.roles:
        yield from _replicas(cluster, _at(task, placed), placed)
    gpus_of = {placed.role: frozenset(placed.gpus) for placed in running.roles}
    for phase in running.configuration.phases:
        held = [_union(gpus_of, pool) for pool in phase.pools]
        for one, other in combinations(held, 2):
            if one & other:
                shared = ", ".join(map(str, sorted(one & other)))
                yield Violation("pools-overlap", f"two pools that run at once share {shared}", task.id)
        for pool, gpus in zip(phase.pools, held, strict=True):
            yield from _pool(task, pool, gpus)
    if len(running.gpus) > running.configuration.gpus:
        message = f"holds {len(running.gpus)} GPUs, its configuration has {running.configuration.gpus}"
        yield Violation("too-many-gpus", message, task.id)


def _union(gpus_of: dict[str, frozenset[GpuId]], pool: Pool) -> frozenset[GpuId]:
    return frozenset[GpuId]().union(*(gpus_of[choice.role] for choice in pool.choices))


def _replicas(cluster: Cluster, where: str, placed: PlacedRole) -> Found:
    option = placed.choice.option
    if len(placed.replicas) != option.replicas:
        message = f"has {len(placed.replicas)} replicas, its option {option.replicas}"
        yield Violation("replicas", message, where)
    if len(set(placed.gpus)) != len(placed.gpus):
        yield Violation("gpu-twice", "uses a GPU for two of its ranks", where)
    cards = [(gpu.node, cluster.gpus[gpu].device) for gpu in placed.gpus if gpu in cluster.gpus]
    seats = [card for card in cards if card[1] is not None]
    if len(set(seats)) != len(seats):
        yield Violation("gpu-twice", "has two seats of one GPU for its ranks", where)
    for gpu in placed.gpus:
        if gpu not in cluster.gpus:
            yield Violation("unknown-gpu", f"GPU {gpu} is not one the plan may use", where)
        elif cluster.gpus[gpu].gpu_class != option.gpu_class:
            yield Violation("gpu-class", f"GPU {gpu} is not of class {option.gpu_class}", where)
    for number, replica in enumerate(placed.replicas):
        layout = option.mix[number].layout if number < len(option.mix) else option.layout
        if len(replica) != layout.tp * layout.pp * layout.cp:
            yield Violation("replica-size", f"a replica has {len(replica)} GPUs, not {layout}", where)
        if not _keeps_to_nodes(cluster, replica):
            names = ", ".join(map(str, replica))
            yield Violation(
                "straddles", f"replica {names} is cut by a node it does not fill, or by a domain", where
            )


def _keeps_to_nodes(cluster: Cluster, replica: tuple[GpuId, ...]) -> bool:
    nodes = {gpu.node for gpu in replica}
    if len(nodes) <= 1:
        return True
    classes = {cluster.gpus[gpu].gpu_class for gpu in replica if gpu in cluster.gpus}
    whole = {id for id, gpu in cluster.gpus.items() if id.node in nodes and gpu.gpu_class in classes}
    held = any(gpu.id.node in nodes and gpu.gpu_class in classes for gpu in cluster.absent)
    return whole == set(replica) and not held and _in_one_domain(cluster, nodes)


def _in_one_domain(cluster: Cluster, nodes: set[str]) -> bool:
    """Return whether nodes may carry one replica: any may, unless the cluster names NVLink domains."""
    domains = {node.nvlink_domain for node in cluster.nodes if node.id in nodes}
    named = any(node.nvlink_domain is not None for node in cluster.nodes)
    return not named or (len(domains) == 1 and None not in domains)


def _pool(task: Task, pool: Pool, gpus: frozenset[GpuId]) -> Found:
    names = "+".join(choice.role for choice in pool.choices)
    where = f"{task.id}.{names}"
    if any(choice.option.gpu_class != pool.gpu_class for choice in pool.choices):
        yield Violation("gpu-class", f"its pool is of {pool.gpu_class}, a role's option is not", where)
    if len(gpus) > pool.gpus:
        yield Violation("too-many-gpus", f"its roles hold {len(gpus)} GPUs, the pool has {pool.gpus}", where)
    excluded = frozenset[GpuId]().union(
        *(role_of(task, choice.role).excluded_gpus for choice in pool.choices)
    )
    if gpus & excluded:
        bad = ", ".join(map(str, sorted(gpus & excluded)))
        yield Violation("excluded", f"its pool takes {bad}, which one of its roles must not", where)


# ---------------------------------------------------------------- nodes


def _host(cluster: Cluster, holders: Iterable[tuple[Task, RunningTask]]) -> Found:
    """Check that each node has the cores and the memory, and that every CPU worker has a node."""
    cores: defaultdict[str, float] = defaultdict(float)
    memory_mib: defaultdict[str, float] = defaultdict(float)
    for task, running in holders:
        for gpu, (gpu_cores, gpu_memory_mib) in _host_of_gpus(task, running).items():
            cores[gpu.node] += gpu_cores
            memory_mib[gpu.node] += gpu_memory_mib
        yield from _workers(cluster, task, running)
        for share in running.cpu:
            role = next((role for role in task.roles if role.id == share.role and not role.on_gpu), None)
            if role is not None:
                cores[share.node] += role.cpu_cores * share.workers / role.cpu_workers
                memory_mib[share.node] += role.host_memory_mib * share.workers / role.cpu_workers
    for node in cluster.nodes:
        for code, used, given in (
            ("cpu-cores", cores[node.id], node.cpu_cores),
            ("host-memory", memory_mib[node.id], node.host_memory_mib),
        ):
            room = 0.0 if given is None else given  # unknown counts as none
            if used > room + ROOM * max(1.0, room):
                yield Violation(code, f"{used:g} is asked of it, it has {room:g}", node.id)


def _workers(cluster: Cluster, task: Task, running: RunningTask) -> Found:
    """Check that the shares of each CPU-only role add up to its workers, on nodes that exist."""
    for share in running.cpu:
        if share.node not in cluster.node_of:
            yield Violation("unknown-node", f"has workers on {share.node}", f"{task.id}.{share.role}")
        if share.workers < 1:
            yield Violation("workers", f"has a share of {share.workers} workers", f"{task.id}.{share.role}")
    placed: Counter[str] = Counter()
    for share in running.cpu:
        placed[share.role] += share.workers
    expected = {role.id: role.cpu_workers for role in task.roles if not role.on_gpu}
    for role in expected.keys() | placed.keys():
        if placed[role] != expected.get(role, 0):
            message = f"places {placed[role]} workers of {expected.get(role, 0)}"
            yield Violation("workers", message, f"{task.id}.{role}")


def _host_of_gpus(task: Task, running: RunningTask) -> dict[GpuId, tuple[float, float]]:
    """Return (cores, MiB) of each GPU: its pool's; over phases, the sum of each one's largest pool."""
    ways = turns_of(task, running.configuration)
    if len(ways) > 1:
        needs = [[host_per_gpu(turn) for turn in phase] for phase in ways]
        most = (
            sum(max(cores for cores, _ in phase) for phase in needs),
            sum(max(memory for _, memory in phase) for phase in needs),
        )
        return dict.fromkeys(running.gpus, most)
    gpus_of = {placed.role: placed.gpus for placed in running.roles}
    return {gpu: host_per_gpu(turn) for turn in ways[0] for role in turn.roles for gpu in gpus_of[role.id]}
