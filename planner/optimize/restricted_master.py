"""Many configurations, few that matter: configuration generation finds the best choice, a bound, and what is near it.

The master, placement, cuts and the fewest-moves pass then work on those few. The bound is that of
all configurations (`colgen`: prices for every row, and no configuration of any task beats them), so it holds for
the whole problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations.capacity import ClassCapacity, capacities
from libra_plan.planner.configurations.needs import gpus_at_least
from libra_plan.planner.optimize.colgen.oracle import Found
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.search import Limits, Progress, optimise, stays
from libra_plan.planner.optimize.colgen.table import TableOracle
from libra_plan.planner.optimize.objective import PricedTask

__all__ = ["Focus", "focus", "market", "running_stays"]

Floats = NDArray[np.float64]

_NEAR = 12  # configurations kept per task beside the chosen one


@dataclass(frozen=True, slots=True)
class Focus:
    """Per task the numbers of the configurations worth looking at, the chosen one first, and the bound."""

    numbers: tuple[tuple[int, ...], ...]
    chosen: dict[int, int]
    bound: float
    stays: bool = False
    """The choice is the running plan, which is near enough to the bound."""


def running_stays(
    priced: Sequence[PricedTask],
    cluster: Cluster,
    limits: Limits,
    *,
    stop: Callable[[], bool],
    clock: Callable[[], float],
) -> Focus | None:
    """Keep the running plan, all of it, if no choice over all configurations is worth more than `limits` allow.

    Cheap next to a solve: no other choice is made, nothing but prices is looked for.
    """
    if any(each.running and not each.held for each in priced):
        return None
    resources, oracles = market(priced, cluster)
    answer = stays(resources, oracles, limits, _kept(priced, oracles), stop=stop, clock=clock)
    if answer is None:
        return None
    chosen = {each.task: _number(each.handle) for each in answer.chosen}
    numbers = tuple(_near(oracle, answer.prices, chosen.get(t)) for t, oracle in enumerate(oracles))
    return Focus(numbers, chosen, answer.bound, stays=True)


def _kept(priced: Sequence[PricedTask], oracles: Sequence[TableOracle]) -> list[tuple[int, Found]]:
    """List the best way of every running task to stay on its GPUs."""
    found = []
    for t, (each, oracle) in enumerate(zip(priced, oracles, strict=True)):
        if each.held:
            best = len(each.table) + int(np.argmax(oracle.values[len(each.table) :]))
            found.append((t, Found(float(oracle.values[best]), oracle.demand(best), best, 0.0)))
    return found


def focus(
    priced: Sequence[PricedTask],
    cluster: Cluster,
    limits: Limits,
    *,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float],
) -> Focus:
    """Solve the choice over all configurations and keep the best configurations of each task at its prices.

    Held placements are configurations too, numbered after the others. Always answers; at the time limit
    the bound is what has been proven by then.
    """
    resources, oracles = market(priced, cluster)
    running = [] if any(each.running and not each.held for each in priced) else _kept(priced, oracles)
    answer = optimise(resources, oracles, limits, running=running, progress=progress, stop=stop, clock=clock)
    chosen = {each.task: _number(each.handle) for each in answer.chosen}
    numbers = tuple(_near(oracle, answer.prices, chosen.get(t)) for t, oracle in enumerate(oracles))
    # stopped before any prices were known: nobody does better than all with their best configurations
    most = sum(float(oracle.values.max(initial=0.0)) for oracle in oracles)
    return Focus(numbers, chosen, min(answer.bound, most * (1 + 1e-9)))


def market(priced: Sequence[PricedTask], cluster: Cluster) -> tuple[Resources, list[TableOracle]]:
    """Give what the cluster has, row by row, and what each task's configurations take of it and are worth.

    Configurations come in the order of the table, the placements a task may keep after them.
    """
    rooms = capacities(cluster)
    kinds = _kinds(priced, rooms)
    demands: dict[int, Floats] = {}
    oracles = []
    for each in priced:
        key = id(each.table.drafts)  # identical tasks share their drafts
        if key not in demands:
            demands[key] = _demands(each, kinds, rooms)
        oracles.append(_oracle(each, demands[key], kinds, rooms))
    names = (*(f"{name}:{size}" for name, size in kinds), "cpu-cores", "host-memory")
    room = [float(size * rooms[name].rooms(size)) for name, size in kinds]
    room += [sum(node.cpu_cores or 0.0 for node in cluster), sum(n.host_memory_mib or 0.0 for n in cluster)]
    return Resources(names, np.array(room), np.zeros((0, len(names)))), oracles


def _number(handle: object) -> int:
    assert isinstance(handle, int)
    return handle


def _near(oracle: TableOracle, prices: Floats, chosen: int | None) -> tuple[int, ...]:
    near = [_number(found.handle) for found in oracle.near(prices, -np.inf, _NEAR)]
    smallest = int(np.argmin(oracle.demands[:, 0])) if len(oracle.values) else None
    first = [number for number in (chosen, smallest) if number is not None]
    return tuple(dict.fromkeys([*first, *near]))


def _kinds(priced: Sequence[PricedTask], rooms: dict[str, ClassCapacity]) -> list[tuple[str, int]]:
    used = {block[:2] for each in priced for draft in each.table.drafts for block in draft.blocks}
    return sorted(used | {(name, 1) for name in rooms}, key=lambda kind: (kind[0], kind[1]))


def _demands(each: PricedTask, kinds: Sequence[tuple[str, int]], rooms: dict[str, ClassCapacity]) -> Floats:
    """Measure what every configuration takes of every row, without building it."""
    demand = np.zeros((len(each.table), len(kinds) + 2))
    for row, draft in enumerate(each.table.drafts):
        for at, (name, size) in enumerate(kinds):
            demand[row, at] = gpus_at_least(draft.blocks, name, size, rooms[name].full_node_gpus)
        demand[row, -2:] = draft.cores, draft.host_mib
    return demand


def _oracle(
    each: PricedTask, demand: Floats, kinds: Sequence[tuple[str, int]], rooms: dict[str, ClassCapacity]
) -> TableOracle:
    if each.reference is None:
        return TableOracle(np.zeros(0), np.zeros((0, len(kinds) + 2)))
    values = each.urgency * each.stay / each.table.seconds / each.reference
    held = np.array([entry.worth for entry in each.held])
    keeps = np.zeros((len(each.held), len(kinds) + 2))
    for row, entry in enumerate(each.held):
        for at, (name, size) in enumerate(kinds):
            keeps[row, at] = entry.gpus_in_blocks(name, size, rooms[name].full_node_gpus)
        keeps[row, -2:] = entry.host
    demand = np.concatenate((demand, keeps))
    env = [role for role in each.task.roles if not role.on_gpu]
    demand[:, -2] += sum(role.cpu_cores for role in env)
    demand[:, -1] += sum(role.host_memory_mib for role in env)
    return TableOracle(np.concatenate((values, held)), demand)
