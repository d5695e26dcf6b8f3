"""The verifier works out for itself what the planner works out: a shared mistake must not pass."""

from __future__ import annotations

from functools import cached_property
from typing import NoReturn

import pytest
from random_problems import random_problem, with_running

from libra_plan.models.topology import Cluster
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem
from libra_plan.planner.verify import violations_of

PLANNERS_OWN = (
    (Problem, "sharing_now"),
    (Cluster, "full_node_gpus"),
    (Cluster, "span_of"),
    (Cluster, "racks"),
)
"""What the planner derives from problem and cluster, and rests on."""


@pytest.mark.parametrize("seed", range(900, 912))
def test_it_asks_nothing_that_the_planner_has_derived(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan is verified alike where the planner's derived facts can no longer be asked for."""
    first = random_problem(seed)
    plan = solve_problem(first, SolveParams(gap=1e-6)).plan
    if plan is None:
        return
    problem = with_running(first, plan, seed)
    plan = solve_problem(problem, SolveParams(gap=1e-6)).plan
    if plan is None:
        return

    def asked(_: object) -> NoReturn:
        raise AssertionError("the verifier asks what the planner has derived")

    for owner, name in PLANNERS_OWN:
        forbidden = cached_property(asked)
        forbidden.__set_name__(owner, name)
        monkeypatch.setattr(owner, name, forbidden)
        for each in (problem, problem.cluster):
            each.__dict__.pop(name, None)  # what was asked before is remembered there
    assert violations_of(problem, plan) == []
