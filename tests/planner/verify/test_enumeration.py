"""The verifier enumerates every way to run a task: no configuration of the planner's beats all of them."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import reference
from policy_problems import lab, option
from random_problems import random_problem

from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind, Problem, Role, Task
from libra_plan.planner.verify import violations_of
from libra_plan.planner.verify.blocks import Inventory, gpus_in_blocks
from libra_plan.planner.verify.enumeration import enumerate_ways, undominated


@pytest.mark.parametrize("first", range(5000, 5240, 60))
def test_planner_and_verifier_know_the_same_ways(first: int) -> None:
    """Written apart, both lists must cover each other: a way that only one knows is a mistake of one."""
    compared = 0
    for seed in range(first, first + 60):
        problem = random_problem(seed)
        inventory = Inventory(problem.cluster)
        for task in problem.tasks:
            rows = rows_of(task, problem.cluster.gpu_classes)
            ways = enumerate_ways(inventory, task, rows)
            own = np.column_stack([ways.seconds, ways.uses])
            theirs = planned(task, problem.cluster, rows, inventory)
            for one, other in ((own, theirs), (theirs, own)):
                for way in other:
                    assert (one <= way * (1 + 1e-9) + 1e-9).all(axis=1).any(), (seed, task.id, way)
            compared += len(own)
    assert compared > 100


def rows_of(task, classes):
    sizes = {
        (option.gpu_class, max(size for size, _ in option.sizes))
        for role in task.gpu_roles
        for option in role.options
    }
    return sorted(sizes | {(name, 1) for name in classes})


def planned(task, cluster, rows, inventory):
    found = [
        [
            configuration.step_time_s.value,
            *(
                sum(
                    gpus_in_blocks(inventory.full_node_gpus[name], block, size) * number
                    for name, block, number in configuration.blocks
                    if name == owner
                )
                for owner, size in rows
            ),
        ]
        for configuration in configurations_of(task, cluster, hosts_bind=False).configurations
    ]
    return np.array(found).reshape(-1, 1 + len(rows))


def test_undominated_keeps_one_of_equals_and_all_that_nothing_beats() -> None:
    """The filter is what keeps enumeration small; leaving out too much would make bounds too low."""
    rng = np.random.default_rng(3)
    table = rng.integers(0, 6, size=(1500, 3)).astype(float)
    kept = table[undominated(table)]
    for row in np.unique(table, axis=0):
        beaten = ((table <= row).all(axis=1) & (table < row).any(axis=1)).any()
        assert (kept == row).all(axis=1).sum() == (0 if beaten else 1)


def test_a_fair_share_counts_only_what_fits_together_on_odd_nodes() -> None:
    """Two pairs and a four of GPUs each fit on nodes of 4, 3 and 1, but not beside each other."""
    rollout = Role("r", "rollout", (option(10.0, 2, tp=2), option(40.0)))
    train = Role("t", "actor_train", (option(10.0, tp=4),))
    apart = frozenset({Arrangement.SEPARATE})
    alone = Task("t", 1.0, (rollout, train), Coupling(CouplingKind.SYNC), apart)
    problem = Problem(lab(4, 3, 1), (alone,))
    plan = solve_problem(problem, SolveParams(gap=0.0)).require_plan()
    assert violations_of(problem, plan) == []
    assert [each.normalised for each in plan.running] == [1.0]
    assert reference(problem, alone) == pytest.approx(1 / 50)
