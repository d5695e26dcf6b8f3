"""Bounds drawn from one run must hold for another: two shipped sets of one stack test each other."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from libra_plan.models.memory.bound import run_reserve

FILE = Path(__file__).parents[2] / "benchmarks" / "memory_runs.py"
spec = importlib.util.spec_from_file_location("memory_runs", FILE)
assert spec is not None
assert spec.loader is not None
memory_runs = importlib.util.module_from_spec(spec)
sys.modules["memory_runs"] = memory_runs  # dataclasses look their module up
spec.loader.exec_module(memory_runs)


def test_the_shipped_reserve_is_what_the_measurements_give():
    """A constant nobody can derive again is a guess."""
    found = memory_runs.derived(list(memory_runs.measured_twice()))
    assert pytest.approx(found.mib, abs=0.05) == run_reserve("h200_sxm").mib
    assert pytest.approx(found.share, abs=5e-5) == run_reserve("h200_sxm").share


@pytest.mark.parametrize("leave_model_out", [False, True])
def test_bounds_of_either_set_hold_for_the_other(leave_model_out):
    """95 % of the other run's peaks, every phase both ways, and no out-of-memory row called feasible.

    Also with a reserve drawn without the model it is tried on, or it would only repeat the fit.
    """
    found = memory_runs.cross_coverage(leave_model_out=leave_model_out)
    assert {name for name, _ in found} == {"h200", "h200b"}
    for coverage in found.values():
        assert sum(coverage.covered) >= 0.95 * len(coverage.covered) > 30
        assert coverage.oom_called_feasible == 0
        middle = sorted(coverage.widths)[len(coverage.widths) // 2]
        assert middle < 1.35  # wider would cover by being useless
