"""The verifier on plans that break what a policy or a task asks, one promise at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from policy_problems import lab, option, task

from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import DeadlineSlack, Plan
from libra_plan.planner.problem import Deadline, Policy, Problem, Quota
from libra_plan.planner.verify import violations_of


def problem(policy: Policy) -> Problem:
    """Two teams in two tiers on four GPUs at 2.00 each; `late` asks more than it can have."""
    tasks = (
        task("late", option(2.0, 1), option(1.0, 2), team="red", deadline=Deadline(100.0, 10.0)),
        task("rest", option(2.0, 1), option(1.2, 2), team="blue", tier=1),
    )
    quotas = (Quota("red", 1), Quota("blue", 1))
    return Problem(lab(4), tasks, policy=policy, quotas=quotas, budget_per_hour=8.0)


def planned(policy: Policy) -> tuple[Problem, Plan]:
    asked = problem(policy)
    plan = solve_problem(asked).require_plan()
    assert violations_of(asked, plan) == []
    return asked, plan


def codes(asked: Problem, plan: Plan) -> set[str]:
    return {violation.code for violation in violations_of(asked, plan)}


def proof(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, certificate=replace(plan.certificate, **changes))


@pytest.mark.parametrize("cost", [None, 7.0])
def test_a_cost_that_is_not_that_of_the_gpus_is_found(cost: float | None) -> None:
    """Whoever pays must be able to trust the sum."""
    asked, plan = planned(Policy.THROUGHPUT)
    assert codes(asked, proof(plan, cost_per_hour=cost)) == {"cost"}


def test_a_plan_beyond_its_budget_is_found() -> None:
    """The same plan for less money is one that must not run."""
    asked, plan = planned(Policy.THROUGHPUT)
    assert plan.certificate.cost_per_hour == 8.0
    dear = replace(asked, budget_per_hour=7.99)
    assert codes(dear, proof(plan, budget_per_hour=7.99)) == {"budget"}
    assert codes(dear, plan) == {"budget"}


def test_a_missed_deadline_must_be_told_as_it_is() -> None:
    """Hidden, embellished or invented: each is found."""
    asked, plan = planned(Policy.THROUGHPUT)
    (slack,) = plan.certificate.deadlines
    assert (slack.task, slack.wanted_steps_per_s, slack.steps_per_s) == ("late", 10.0, 1.0)
    assert (slack.best_alone_steps_per_s, slack.best_beside_steps_per_s) == (1.0, 1.0)
    for told in (
        (),
        (replace(slack, steps_per_s=9.0),),
        (replace(slack, best_beside_steps_per_s=0.5),),
        (slack, DeadlineSlack("rest", 0.0, 0.5, None, None)),
        (slack, replace(slack, task="who")),
    ):
        assert codes(asked, proof(plan, deadlines=told)) == {"deadline"}, told


def test_tiers_are_worth_what_their_tasks_are() -> None:
    """The certificate's objective covers the first tier alone, so the others must be checked too."""
    asked, plan = planned(Policy.PRIORITY)
    first, second = plan.certificate.passes
    wrong = replace(second, objective=second.objective / 2)
    assert codes(asked, proof(plan, passes=(first, wrong))) == {"tier"}
    assert codes(asked, proof(plan, passes=(first,))) == {"tier"}
    beyond = replace(second, bound=second.objective / 2)
    assert codes(asked, proof(plan, passes=(first, beyond))) == {"bound"}


@pytest.mark.parametrize("change", [{"borrowed_gpus": 0}, {"worth": 9.0}, {"worth_at_quota": 9.0}])
def test_a_team_has_what_is_said_of_it(change: dict[str, Any]) -> None:
    """Who borrows is what teams will argue about; and nobody may end below the quota's worth."""
    asked, plan = planned(Policy.FAIR_SHARE)
    red, blue = plan.certificate.teams
    assert (red.team, red.gpus, red.borrowed_gpus) == ("red", 2, 1)
    assert codes(asked, proof(plan, teams=(replace(red, **change), blue))) == {"team"}
    assert codes(asked, proof(plan, teams=(red,))) == {"team"}
