"""Sweeps give the same figures whatever spreads them, and say what is missing where it is not installed."""

import sys

import msgspec
import pytest
from sim_worlds import DECODE, TRAIN, make_task, make_world

from libra_plan.errors import InputError
from libra_plan.planner.simulate.sweep import Case, in_parallel, sweep
from libra_plan.planner.simulate.world import Costs

NEEDS = {"loky": "joblib", "dask": "distributed", "ray": "ray"}


@pytest.mark.filterwarnings("default")  # of packages that are not ours
@pytest.mark.parametrize(
    "backend", ["loky", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dask", "ray"))]
)
def test_runs_spread_over_processes_give_what_one_process_gives(backend):
    """Sweeps in parallel must change nothing but time; without an address they start workers here."""
    pytest.importorskip(NEEDS[backend], reason=f"{NEEDS[backend]} is not installed: its backend is not tried")
    world = make_world(make_task(costs=Costs(decode=(DECODE,), train=TRAIN, sync_s=1.0)), gpus=4, hours=0.1)
    cases = [Case(world, name, seed) for name in ("equal", "best-static") for seed in (0, 1)]

    def figures(jobs, backend):
        return [
            msgspec.structs.replace(each, decide_p50_s=0.0, decide_p99_s=0.0)
            for each, _ in sweep(cases, jobs, backend)
        ]

    assert figures(2, backend) == figures(1, "loky")


@pytest.mark.parametrize(("backend", "package"), [("loky", "joblib"), ("dask", "dask"), ("ray", "ray")])
def test_what_is_not_installed_is_named(backend, package, monkeypatch):
    """A user must read what to install, not an ImportError."""
    pytest.importorskip("joblib")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=f"runs in parallel by {backend} need a package"):
        next(in_parallel(str, [1, 2], 2, backend))


# on a busy machine a thread of joblib's own may still hand in what was just given up
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_results_that_nobody_waits_for_end_the_workers():
    """Leaving a sweep early, as after Ctrl-C, must come back, with the results in order till then."""
    pytest.importorskip("joblib")
    found = in_parallel(abs, range(-100, 0), 2, "loky")
    assert [next(found) for _ in range(3)] == [100, 99, 98]
    found.close()
    with pytest.raises(StopIteration):
        next(found)
