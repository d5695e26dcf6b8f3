"""The configurations of a task, against lists worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind
from libra_plan.planner.tables import table_cluster, table_task


def found(task, gpus=8, node=8):
    table = configurations_of(task, table_cluster(gpus, node), hosts_bind=False)
    return [(round(float(s), 6), table.blocks(at)) for at, s in enumerate(table.seconds)]


def test_more_gpus_count_only_where_they_are_faster() -> None:
    """Three GPUs that are no faster than two are dominated, and so is what the cluster has no room for."""
    task = table_task("t", 1.0, {"train": {1: 10.0, 2: 6.0, 3: 6.0, 4: 4.0, 16: 1.0}})
    table = configurations_of(task, table_cluster(8, 8), hosts_bind=False)
    assert found(task) == [
        (4.0, (("table", 1, 4),)),
        (6.0, (("table", 1, 2),)),
        (10.0, (("table", 1, 1),)),
    ]
    assert table.gpus.tolist() == [4, 2, 1]
    assert table.configuration(0).step_time_s.value == 4.0


def test_roles_take_turns_or_run_side_by_side() -> None:
    """Synchronous roles gain nothing side by side; asynchronous ones take the longer of both times."""
    seconds = {"rollout": {1: 8.0, 2: 4.0}, "train": {1: 6.0, 2: 3.0}}
    in_turn = table_task("t", 1.0, seconds)
    at_once = table_task("t", 1.0, seconds, Coupling(CouplingKind.ASYNC, 1))
    assert found(in_turn) == [(7.0, (("table", 1, 2),)), (14.0, (("table", 1, 1),))]
    # apart: 2 + 2 GPUs max(4, 3), 2 + 1 max(4, 6), 1 + 1 max(8, 6); in turn on one GPU: 14, on two: 7
    assert found(at_once) == [
        (4.0, (("table", 1, 4),)),
        (6.0, (("table", 1, 3),)),
        (7.0, (("table", 1, 2),)),
        (14.0, (("table", 1, 1),)),
    ]


@pytest.mark.parametrize(
    ("allowed", "gpus"),
    [(Arrangement.COLOCATED, [2, 1]), (Arrangement.SEPARATE, [4, 3, 2])],
)
def test_only_the_arrangements_that_a_framework_allows(allowed: Arrangement, gpus: list[int]) -> None:
    """A framework that cannot place roles apart, or together, must not get such a plan."""
    seconds = {"rollout": {1: 8.0, 2: 4.0}, "train": {1: 6.0, 2: 3.0}}
    task = table_task("t", 1.0, seconds, Coupling(CouplingKind.ASYNC, 1), arrangements=[allowed])
    assert configurations_of(task, table_cluster(8, 8)).gpus.tolist() == gpus


def test_limits_of_a_task_hold_for_the_whole_configuration() -> None:
    """A slower configuration is kept where the faster ones are outside the limits."""
    task = table_task("t", 1.0, {"train": {1: 10.0, 2: 6.0, 4: 4.0}})
    limited = replace(task, min_gpus=2, max_gpus=3)
    assert found(limited) == [(6.0, (("table", 1, 2),))]


def test_kept_rows_keep_their_configurations() -> None:
    """Rows are numbers into what was made, so a shorter table must still build the right ones."""
    table = configurations_of(
        table_task("t", 1.0, {"train": {1: 10.0, 2: 6.0, 4: 4.0}}), table_cluster(8, 8), hosts_bind=False
    )
    kept = table.keep(np.array([2, 0]))
    assert kept.seconds.tolist() == [10.0, 4.0]
    assert [each.gpus for each in kept.configurations] == [1, 4]
    assert kept.dropped == table.dropped + 1
