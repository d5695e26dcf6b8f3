"""Replicas out of blocks: their sizes, their order, and that none is cut by a node."""

from __future__ import annotations

import pytest

from libra_plan.models.topology import GpuId
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.optimize.replicas import Block, _carved, placed_roles
from libra_plan.planner.plan import Configuration
from libra_plan.planner.problem import Problem, Task
from libra_plan.planner.tables import table_cluster, table_task


def _gpus(node: int, *indices: int) -> Block:
    return tuple(GpuId(f"node{node}", index) for index in indices)


def _on(problem: Problem, *places: tuple[int, int]) -> Block:
    return tuple(problem.cluster.nodes[node].gpus[index].id for node, index in places)


def _configuration(problem: Problem, gpus: int, task: int = 0) -> Configuration:
    found = [entry.configuration for entry in candidates_of(problem, problem)[task].candidates]
    return next(each for each in found if each.gpus == gpus and len(each.phases[0].pools) == 1)


def _problem(size: int, gpus: int, per_node: int) -> tuple[Problem, Task]:
    task = table_task("a", 1.0, {"r": {gpus: 2.0}}, replica_gpus={"r": size})
    return Problem(table_cluster(8, per_node), (task,)), task


def test_replicas_follow_the_order_of_nodes_whatever_the_order_of_blocks() -> None:
    """Ranks follow nodes, then GPUs."""
    problem, task = _problem(2, 4, 4)
    blocks = [_on(problem, (1, 0), (1, 1)), _on(problem, (0, 2), (0, 3))]
    (role,) = placed_roles(problem.cluster, task, _configuration(problem, 4), {0: blocks})
    assert role.replicas == (blocks[1], blocks[0])


def test_a_replica_larger_than_a_node_is_its_block() -> None:
    """8 GPUs over two nodes of 4 stay in the order of the block."""
    problem, task = _problem(8, 8, 4)
    block = _on(problem, *((node, index) for node in (0, 1) for index in range(4)))
    (role,) = placed_roles(problem.cluster, task, _configuration(problem, 8), {0: [block]})
    assert role.replicas == (block,)


@pytest.mark.parametrize("sizes", [[2, 2, 1, 1, 1, 1], [4, 2, 2], [4, 4], [3, 1, 3, 1]])
def test_carving_takes_each_gpu_once_and_cuts_no_part_by_a_node(sizes: list[int]) -> None:
    """One outer block of two nodes of 4 GPUs."""
    outer = _gpus(0, 0, 1, 2, 3) + _gpus(1, 0, 1, 2, 3)
    sizes = sorted(sizes, reverse=True)
    found = _carved([outer], sizes, 4)
    assert [len(part) for part in found] == sizes
    assert sorted(gpu for part in found for gpu in part) == sorted(outer)
    assert all(len({gpu.node for gpu in part}) == 1 for part in found)


def test_a_part_of_several_nodes_takes_them_whole() -> None:
    """Of three nodes of 2, a part of 4 GPUs takes two, and single GPUs the third."""
    outer = _gpus(0, 0, 1) + _gpus(1, 0, 1) + _gpus(2, 0, 1)
    large, one, other = _carved([outer], [4, 1, 1], 2)
    assert {gpu.node: 0 for gpu in large}.keys().isdisjoint({one[0].node, other[0].node})
    assert len({gpu.node for gpu in large}) == 2
