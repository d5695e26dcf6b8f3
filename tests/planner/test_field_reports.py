"""What went wrong for others with placement and solvers, as problems of ours (docs/field_reports.md)."""

from __future__ import annotations

import pytest
from random_problems import random_problem

from libra_plan.models.topology import AbsentGpu, Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize.base import SolveParams, TerminationReason
from libra_plan.planner.optimize.constraints import Constraint
from libra_plan.planner.optimize.cpsat import _integers
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Arrangement, Problem
from libra_plan.planner.tables import TABLE_CLASS, table_cluster, table_task
from libra_plan.planner.verify import violations_of


def cluster_of(*sizes: int, held: int = 0) -> Cluster:
    """Make nodes with so many usable GPUs each, and so many more that others hold."""
    nodes = tuple(
        Node(f"n{at}", tuple(Gpu(GpuId(f"n{at}", index), TABLE_CLASS, 1.0) for index in range(size)))
        for at, size in enumerate(sizes)
    )
    absent = tuple(
        AbsentGpu(GpuId(node.id, len(node.gpus) + index), TABLE_CLASS, "held by others")
        for node in nodes
        for index in range(held)
    )
    return Cluster("nodes", nodes, absent=absent)


def test_colocated_roles_count_once() -> None:
    """A007: actor, critic and rollout on the same 8 GPUs are 8 slots, not 16 or 24."""
    roles = {name: {8: 10.0} for name in ("actor", "critic", "rollout")}
    task = table_task("t", 1.0, roles, arrangements=[Arrangement.COLOCATED])
    plan = solve_problem(Problem(table_cluster(8), (task,))).require_plan()
    assert plan.running[0].configuration.gpus == 8
    assert len(plan.running[0].gpus) == 8


def test_pools_of_one_phase_never_overlap() -> None:
    """A008: two pools of six on eight GPUs would share four; either they take turns or they shrink."""
    task = table_task("t", 1.0, {"a": {4: 3.0, 6: 2.0}, "b": {4: 3.0, 6: 2.0}})
    problem = Problem(table_cluster(8), (task,))
    plan = solve_problem(problem).require_plan()
    assert violations_of(problem, plan) == []


def test_free_gpus_that_cannot_be_joined_are_not_enough() -> None:
    """A016: two free GPUs on each of four nodes are not the eight that one replica needs."""
    task = table_task("t", 1.0, {"train": {8: 10.0}}, replica_gpus={"train": 8})
    result = solve_problem(Problem(cluster_of(2, 2, 2, 2, held=6), (task,)))
    assert result.plan is None
    assert result.termination.reason is TerminationReason.INFEASIBLE


def test_small_replicas_leave_the_pair_alone() -> None:
    """A017: two single-GPU replicas go to the single nodes, so that the two-GPU one still fits."""
    singles = table_task("singles", 1.0, {"train": {2: 5.0}})
    pair = table_task("pair", 1.0, {"train": {2: 5.0}}, replica_gpus={"train": 2})
    plan = solve_problem(Problem(cluster_of(2, 1, 1), (singles, pair))).require_plan()
    assert [running.task for running in plan.running] == ["singles", "pair"]
    assert {gpu.node for gpu in plan.running[1].gpus} == {"n0"}


def test_a_wide_role_gets_one_node() -> None:
    """A092: beside two roles of four, a replica of eight goes on one node, not four and four."""
    roles = {"rollout": {4: 8.0}, "reward": {4: 8.0}, "policy": {8: 8.0}}
    task = table_task("t", 1.0, roles, arrangements=[Arrangement.SEPARATE], replica_gpus={"policy": 8})
    plan = solve_problem(Problem(cluster_of(8, 8), (task,))).require_plan()
    policy = next(role for role in plan.running[0].roles if role.role == "policy")
    assert len({gpu.node for gpu in policy.gpus}) == 1


def test_rows_in_bytes_do_not_overflow() -> None:
    """A056, A057: 8 × 141 GiB in bytes passes 2^31, where sums of Booleans have proven wrong optima."""
    gpu = 141.0 * 2**30 + 0.5
    row = Constraint("memory", {(0, at): (at + 1) * gpu for at in range(8)}, 20 * gpu)
    coefficients, limit = _integers(row)
    assert sum(coefficients.values()) < 2**31
    assert coefficients[0, 7] / limit == pytest.approx(8 / 20, rel=1e-6)


def test_workers_do_not_change_the_optimum() -> None:
    """A059: what one worker proves, eight must prove as well."""
    for seed in range(6):
        problem = random_problem(seed)
        one, eight = (
            solve_problem(problem, SolveParams(gap=0.0, workers=workers)).plan for workers in (1, 8)
        )
        assert (one is None) == (eight is None)
        if one is not None and eight is not None:
            assert one.certificate.objective == pytest.approx(eight.certificate.objective, rel=2e-6)


def test_no_time_is_not_no_plan() -> None:
    """A063: UNKNOWN is not INFEASIBLE; the split made by hand is there at once, with a bound."""
    tasks = tuple(table_task(f"t{n}", 1.0, {"train": {g: 9.0 / g for g in range(1, 9)}}) for n in range(6))
    result = solve_problem(Problem(table_cluster(32), tasks), SolveParams(time_limit_s=0.01))
    assert result.termination.reason is not TerminationReason.INFEASIBLE
    assert result.require_plan().certificate.bound >= result.require_plan().certificate.objective


def test_speed_is_what_the_table_says() -> None:
    """A070: with 100/s on two GPUs and 150/s on four, four are not planned as 200/s, nor three as 150/s."""
    task = table_task("t", 1.0, {"rollout": {2: 1 / 100, 4: 1 / 150}})
    plan = solve_problem(Problem(table_cluster(3), (task,))).require_plan()
    assert plan.running[0].configuration.steps_per_s == pytest.approx(100.0)
