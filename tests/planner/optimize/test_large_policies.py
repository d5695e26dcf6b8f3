"""Policies at sizes where the time limit ends the search: what they answer then must hold all the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from libra_plan.planner.optimize import unscheduled
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.policies import fair_share
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Deadline, Policy, Problem, Quota
from libra_plan.planner.tables import table_cluster, table_task
from libra_plan.planner.verify import violations_of

TABLES = {"a": {n: 60.0 / n**0.9 for n in range(1, 9)}, "b": {n: 40.0 / n**0.8 for n in range(1, 9)}}


def _teams(tasks: int, gpus: int) -> Problem:
    made = tuple(replace(table_task(f"t{n}", 1.0 + n % 3, TABLES), team="rb"[n % 2]) for n in range(tasks))
    quotas = (Quota("r", gpus // 4), Quota("b", gpus // 2))
    return Problem(table_cluster(gpus, 8), made, policy=Policy.FAIR_SHARE, quotas=quotas)


def test_quotas_hold_when_the_limit_ends_the_first_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound within quotas is none of the plan beyond them, and teams are told of in any case."""
    real, calls = fair_share.best_sum, count()

    def out_of_time(search, hint):
        found = real(search, hint)
        return replace(found, placed=None, infeasible=False) if next(calls) == 0 else found

    monkeypatch.setattr(fair_share, "best_sum", out_of_time)
    problem = _teams(6, 16)
    plan = solve_problem(problem, SolveParams(gap=1e-6)).require_plan()
    assert violations_of(problem, plan) == []
    assert [each.team for each in plan.certificate.teams] == ["r", "b"]
    assert all(each.worth_at_quota > 0 for each in plan.certificate.teams)


def test_explanations_end_soon_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dozens of waiting tasks, a few solves to explain each: nobody waits minutes past a limit of seconds."""
    asked: Iterator[int] = count()
    real = unscheduled.maximise

    def counted(*args, **kwargs):
        next(asked)
        return real(*args, **kwargs)

    now = {"s": 0.0}

    def clock() -> float:
        now["s"] += 0.5
        return now["s"]

    monkeypatch.setattr(unscheduled, "maximise", counted)
    tasks = tuple(
        replace(table_task(f"t{n}", 1.0, TABLES), deadline=Deadline(1.0, 1e6) if n < 2 else None)
        for n in range(30)
    )
    problem = Problem(table_cluster(4), tasks)
    plan = solve_problem(problem, SolveParams(time_limit_s=1e4), clock=clock).require_plan()
    assert violations_of(problem, plan) == []
    assert len(plan.queued) >= 20
    assert next(asked) <= 3 * unscheduled._WEIGHED
    assert "time" in {each.code for each in plan.queued}


def test_missed_deadlines_leave_the_plan_its_time() -> None:
    """What each of many could have had takes a solve to say: past a part of the time it is not known."""
    tasks = tuple(
        replace(table_task(f"t{n}", 1.0 + n % 3, TABLES), deadline=Deadline(1e6, 1.0)) for n in range(12)
    )
    problem = Problem(table_cluster(24, 8), tasks)
    now = {"s": 0.0}

    def clock() -> float:
        now["s"] += 1.0
        return now["s"]

    plan = solve_problem(problem, SolveParams(gap=1e-6, time_limit_s=85.0), clock=clock).require_plan()
    assert violations_of(problem, plan) == []
    told = [each.best_alone_steps_per_s for each in plan.certificate.deadlines]
    assert len(told) == 12
    assert told[0] is not None
    assert told[-1] is None
    assert len(plan.running) == 12
