"""Arguments of wrong types are refused with the name of the argument."""

from __future__ import annotations

import numpy as np
import pytest
from shipped_plan import shipped_plan

import libra_plan as lp
from libra_plan.errors import InputError
from libra_plan.planner.inputs.arguments import check_count, check_number


@pytest.mark.parametrize("gpus", ["8", 8.0, True, 0, -1, 10**9])
def test_gpus_that_are_no_whole_number_are_refused(gpus):
    """Text that looks like a number came out as a TypeError from deep inside."""
    with pytest.raises(
        InputError, match=r"^gpus \(--gpus\) is no whole number; got .*; allowed: .* ≥ 1 and ≤ 1000000; give"
    ):
        lp.solve("profiles", gpus=gpus)
    with pytest.raises(InputError, match=r"gpus_per_node \(--gpus-per-node\)"):
        lp.price("profiles", gpus=8, gpus_per_node=gpus)


@pytest.mark.parametrize("name", ["gap", "time_limit_s"])
@pytest.mark.parametrize("value", ["x", float("nan"), -1, True, None])
def test_limits_of_the_search_are_finite_numbers(name, value):
    """A gap that is not a number would never be reached, or at once."""
    with pytest.raises(InputError, match=f"^{name} is no number that .*; got .*; allowed: .*; leave it out"):
        lp.solve("profiles", gpus=8, **{name: value})
    with pytest.raises(InputError, match=f"^{name} is no number that"):
        lp.explain(shipped_plan(), **{name: value})


def test_a_gap_is_finite_and_a_time_limit_need_not_be():
    """A search without a time limit ends at its gap."""
    check_number("time_limit_s", float("inf"), 10.0, endless=True)
    with pytest.raises(InputError, match="allowed: a finite number"):
        check_number("gap", float("inf"), 1e-5)


def test_numbers_of_numpy_are_numbers():
    """Sweeps over numpy ranges must not fail."""
    check_count("gpus", np.int64(8))
    check_number("gap", np.float64(0.01), 0.0)


def test_a_plan_and_a_problem_are_told_apart():
    """Both come out of one call after the other, and are easily mixed up."""
    plan = shipped_plan()
    for function in (lp.explain, lp.verify):
        with pytest.raises(
            InputError, match="plan is no Plan; got PricedProblem; allowed: Plan; give what `solve`"
        ):
            function(plan.problem)
    with pytest.raises(InputError, match="problem is no Problem; got Plan"):
        lp.verify(plan, plan)


@pytest.mark.parametrize("source", [None, 8, ["profiles"]])
def test_a_source_that_is_no_folder_is_refused(source):
    """None is what a forgotten variable holds."""
    with pytest.raises(InputError, match=r"no profiles folder was named; got .*; allowed: a path"):
        lp.solve(source, gpus=8)
    with pytest.raises(InputError, match="no profiles folder was named"):
        lp.load(source)
