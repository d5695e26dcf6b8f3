"""The verifier enumerates every way to run a task: no configuration of the planner's beats all of them."""

from __future__ import annotations

import numpy as np
import pytest
from random_problems import random_problem

from libra_plan.planner.configurations import configurations_of
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
            limits = [size * inventory.room(name, size) for name, size in rows]
            ways = enumerate_ways(inventory, task, rows)
            own = np.column_stack([ways.seconds, ways.uses])
            theirs = planned(task, problem.cluster, rows, inventory)
            theirs = theirs[(theirs[:, 1:] <= limits).all(axis=1)]
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
