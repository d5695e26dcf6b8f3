"""From plans to placements, and from a share of the cluster to the best plan in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentTask, Problem

__all__ = ["PARAMS", "best_in", "part_of", "shares", "split"]

PARAMS = SolveParams(deterministic=True, time_limit_s=20.0, gap=1e-4)


def part_of(cluster: Cluster, gpus: Iterable[GpuId]) -> Cluster:
    """Give the part of a cluster that has these GPUs."""
    wanted = frozenset(gpus)
    nodes = (
        replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id in wanted)) for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(node for node in nodes if node.gpus))


def split(whole: Cluster, parts: Mapping[str, int]) -> dict[str, frozenset[GpuId]]:
    """Cut a cluster into parts of so many GPUs, one after the other along its nodes, largest part first."""
    gpus = list(whole.gpus)
    found, at = {}, 0
    for name in sorted(parts, key=lambda each: (-parts[each], each)):
        found[name] = frozenset(gpus[at : at + parts[name]])
        at += parts[name]
    return found


def shares(whole: Cluster, weights: Mapping[str, float], unit: int = 1) -> dict[str, int]:
    """Share GPUs in proportion to weights, in units of GPUs, each at least one unit."""
    units = len(whole.gpus) // unit
    total = sum(weights.values())
    exact = {name: units * weight / total for name, weight in weights.items()}
    found = {name: max(1, int(value)) for name, value in exact.items()}
    rest = sorted(exact, key=lambda name: (found[name] - exact[name], name))
    for name in rest:
        if sum(found.values()) < units:
            found[name] += 1
    while sum(found.values()) > units and max(found.values()) > 1:
        found[max(found, key=lambda name: (found[name] - exact[name], name))] -= 1
    return {name: value * unit for name, value in found.items()}


def best_in(
    problem_on: Callable[[Cluster], Problem], cluster: Cluster, gpus: frozenset[GpuId]
) -> tuple[IncumbentTask, ...]:
    """Give the best placements of a problem on some GPUs of a cluster; () when nothing fits there."""
    part = part_of(cluster, gpus)
    if not part.nodes:
        return ()
    plan = solve_problem(problem_on(part), PARAMS).plan
    return () if plan is None else held_by(plan)
