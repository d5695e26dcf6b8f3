"""The verifier's own arithmetic of a step, of memory and of a node, against sums done by hand."""

from __future__ import annotations

import math

import pytest

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.rollout.streaming import Stream
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind, Role, StageOption, Task
from libra_plan.planner.verify.rules import Turn, configuration_peak_mib, host_per_gpu, step_times


def option(seconds: float, peak: float, static: float, stream: Stream | None = None) -> StageOption:
    time_s = Estimate(seconds, 0.9 * seconds, 1.5 * seconds, "s", Origin.MEASURED)
    return StageOption("a", Layout(), 1, time_s, peak, static, 50.0, 40.0, 0.25, 0.75, stream=stream)


def turn(mode: MemoryMode, *options: StageOption) -> Turn:
    roles = tuple(
        Role(f"r{at}", "rollout", (each,), cpu_cores_per_gpu=2.0, host_memory_mib_per_gpu=10.0)
        for at, each in enumerate(options)
    )
    return Turn(roles, options, mode)


def task(kind: CouplingKind, staleness: int = 0, groups: int | None = None) -> Task:
    return Task("t", 1.0, (), Coupling(kind, staleness, groups), sync_s=0.5)


LONG, SHORT = option(8.0, 900.0, 400.0), option(2.0, 700.0, 200.0)
APART = [[turn(MemoryMode.RESIDENT, LONG), turn(MemoryMode.RESIDENT, SHORT)]]


@pytest.mark.parametrize(
    ("coupling", "seconds"),
    [
        (task(CouplingKind.SYNC), 8.0 + 2.0),
        (task(CouplingKind.PIPELINED, groups=4), 10.0 / 4 + 0.75 * 8.0),
        (task(CouplingKind.ASYNC, 1), 8.0),  # (8 + 2) / 2 is less than the slowest pool
    ],
)
def test_pools_overlap_as_the_coupling_says(coupling: Task, seconds: float) -> None:
    """Roles apart also hand the weights over."""
    value, low, high = step_times(coupling, APART)
    assert value == pytest.approx(seconds + 0.5)
    assert low == pytest.approx(0.9 * seconds + 0.5)
    assert high == pytest.approx(1.5 * seconds + 0.5)


def test_sleeping_in_turn_costs_the_switches_and_saves_the_state() -> None:
    """Two roles that sleep add 2 s of switches; each peaks beside what the other leaves asleep."""
    asleep = [[turn(MemoryMode.SLEEP, LONG, SHORT)]]
    resident = [[turn(MemoryMode.RESIDENT, LONG, SHORT)]]
    assert step_times(task(CouplingKind.SYNC), asleep)[0] == pytest.approx(10.0 + 2.0)
    assert step_times(task(CouplingKind.SYNC), resident)[0] == pytest.approx(10.0)
    assert configuration_peak_mib(asleep) == 900.0 + 50.0
    assert configuration_peak_mib(resident) == 900.0 + 200.0
    assert host_per_gpu(asleep[0][0]) == (4.0, 20.0 + 80.0)
    assert host_per_gpu(resident[0][0]) == (4.0, 20.0)


def test_phases_leave_their_largest_pool_behind() -> None:
    """While a phase works, the most that any pool of the other phase keeps is still on its GPUs."""
    phases = [APART[0], [turn(MemoryMode.RESIDENT, option(1.0, 300.0, 100.0))]]
    assert configuration_peak_mib(phases) == max(900.0 + 100.0, 300.0 + 400.0)
    assert step_times(task(CouplingKind.SYNC), phases)[0] == pytest.approx(8.0 + 2.0 + 1.0 + 0.5)


def test_staleness_slows_a_stream_to_the_root_of_its_equation() -> None:
    """(T·(η + ½) − rest)·(T − work) = latency·T, whose larger root is the step where it is the longest."""
    streaming = option(1.0, 0.0, 0.0, Stream(work_s=1.0, latency_s=30.0))
    ways = [[turn(MemoryMode.RESIDENT, streaming), turn(MemoryMode.RESIDENT, SHORT)]]
    value = step_times(task(CouplingKind.ASYNC, 1), ways)[0] - 0.5
    half = 1.5 * 1.0 + 2.0 + 30.0
    assert value == pytest.approx((half + math.sqrt(half * half - 4 * 1.5 * 2.0)) / 3.0)
