"""Phases: the seconds of pools side by side under each coupling, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import exactly
from libra_plan.planner.configurations.capacity import ClassCapacity
from libra_plan.planner.configurations.phases import at_least, coupled_time_s, phase_table
from libra_plan.planner.configurations.pools import pool_options, role_options
from libra_plan.planner.problem import Coupling, CouplingKind, Role, StageOption, Task

ROOMS = {"a": ClassCapacity("a", 8, 1000.0, (8,), 8, ("n0",), {"n0": "n0"})}
FULL = {"a": 8}
COUPLINGS = [
    (Coupling(CouplingKind.SYNC), 16.0),
    (Coupling(CouplingKind.PIPELINED, groups=4), 16 / 4 + 3 / 4 * 10),
    (Coupling(CouplingKind.ASYNC, 0), 16.0),
    (Coupling(CouplingKind.ASYNC, 1), 10.0),
]


def option(seconds: float, replicas: int) -> StageOption:
    return StageOption("a", Layout(), replicas, exactly(seconds, "s"), 100.0, 10.0, 1.0, 10.0, None, None)


def table_of(coupling: Coupling, gpus: int, *roles: tuple[StageOption, ...]):
    made = tuple(Role(f"r{at}", "rollout", options) for at, options in enumerate(roles))
    pools = [pool_options([role_options(role, ROOMS)]) for role in made]
    task = Task("t", 1.0, made, coupling)
    return phase_table(pools, task, gpus, FULL), task


@pytest.mark.parametrize(("coupling", "wanted"), COUPLINGS)
def test_pools_of_ten_and_six_seconds(coupling: Coupling, wanted: float) -> None:
    """One after the other, in four groups, or paced by the slowest; arrays say the same as numbers."""
    assert coupled_time_s([(10.0, None), (6.0, None)], coupling) == pytest.approx(wanted)
    table, task = table_of(coupling, 8, (option(10.0, 1),), (option(6.0, 1),))
    assert table.time_s(task) == pytest.approx([wanted])


def test_only_phases_that_gain_something_and_fit_are_kept() -> None:
    """Of 2 × 2 combinations on at most 3 GPUs one is too large; 1 + 2 GPUs take 15 s, 2 + 1 GPUs 16 s."""
    first, second = (option(10.0, 1), option(8.0, 2)), (option(8.0, 1), option(5.0, 2))
    table, task = table_of(Coupling(CouplingKind.SYNC), 3, first, second)
    found = sorted(zip(table.gpus.tolist(), table.time_s(task).tolist(), strict=True))
    assert found == [(2, 18.0), (3, 15.0)]


def test_gpus_in_blocks_of_at_least_each_size() -> None:
    """Three pairs and one four are 10 GPUs, 4 of them in fours; twos and threes are counted apart."""
    counts = np.array([[3, 1]])
    assert at_least(counts, [("a", 2), ("a", 4)], FULL).tolist() == [[10, 4]]
    assert at_least(counts, [("a", 2), ("a", 3)], FULL).tolist() == [[3, 1]]
