"""Failures, moves and errors: counted where there are enough, else the base's and named."""

import math

import numpy as np
import pytest
from fake_nvml import Hands
from sim_recordings import write_trace
from sim_worlds import make_task, make_world
from telemetry_cases import gpu, recorder, sample

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.fit.evidence import FitFindings, Recorded
from libra_plan.planner.simulate.fit.site import fit_error, fit_failures, fit_switching
from libra_plan.planner.simulate.fit.sources import add_monitor, read_recordings
from libra_plan.planner.simulate.policies import make_policy
from libra_plan.planner.simulate.world import Failures
from libra_plan.planner.telemetry.readers import ReaderFacts
from libra_plan.planner.telemetry.sample import GpuState


def test_failures_and_moves_of_a_trace_come_back(tmp_path):
    """Mean time between failures within its interval, starts within the triangle they were drawn from."""
    failures = Failures(mtbf_hours=4.0, repair_median_s=600.0, repair_sigma=0.5)
    world = make_world(make_task(), gpus=8, hours=6.0, failures=failures, free=False)
    trace = write_trace(tmp_path / "t.jsonl", run_world(world, make_policy("equal"), 0, keep_stages=True))
    seen, found = read_recordings([trace], ReaderFacts()), FitFindings()
    fitted = fit_failures(world, seen, found)
    (mtbf, repair) = found.figures
    assert mtbf.low < 4.0 < mtbf.high
    assert fitted.repair_median_s == pytest.approx(600.0, rel=0.5)
    assert repair.samples == len(seen.repairs_s) >= 3
    switching = fit_switching(world, seen, found)
    assert 7.05 <= switching.start_s[0] <= switching.start_s[1] <= switching.start_s[2] <= 8.32
    assert switching.save_gib_per_s == world.switching.save_gib_per_s


def test_two_failures_are_no_rate():
    """They are told, with the hours in which they were seen."""
    found = FitFindings()
    assert fit_failures(make_world(make_task()), Recorded(gpu_hours=500.0, failures=2), found) is None
    assert found.assumed == [("failures: none", "2 failures in 500.0 GPU-hours, 3 are the least")]


def test_the_error_of_models_needs_eight_outcomes():
    """Its figure is the root of the mean square, as the world's `model_error`."""
    errors = list(np.random.default_rng(0).normal(0.0, 0.1, 200))
    found = FitFindings()
    assert fit_error(make_world(make_task()), Recorded(errors=errors), found) == pytest.approx(0.1, rel=0.15)
    assert fit_error(make_world(make_task()), Recorded(errors=errors[:7]), found) == 0.0
    assert found.assumed[0][0] == "model_error"


def test_lost_gpus_of_a_monitors_recording_are_failures(tmp_path):
    """A GPU that goes from ok to lost failed, and is repaired when it is ok again; gaps are not watched."""
    lost = {60.0, 120.0}
    times = [0.0, 60.0, 120.0, 180.0, 10_000.0, 10_060.0]
    hands = Hands()
    writer = recorder(tmp_path, hands)
    for at_s in times:
        state = GpuState.LOST if at_s in lost else GpuState.OK
        writer.write(sample(at_s, gpu(0), gpu(1, state=state)))
    writer.close()
    seen = Recorded()
    add_monitor(tmp_path, seen)
    assert (seen.failures, seen.repairs_s, seen.gpus) == (1, [120.0], 2)
    assert math.isclose(seen.gpu_hours, 2 * 240.0 / 3600.0)
