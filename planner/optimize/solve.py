"""`solve(problem, params)`: from a frozen problem to a placed plan with its proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from libra_plan.planner.configurations.known import KnownConfigurations
from libra_plan.planner.optimize.base import (
    SolveParams,
    SolveResult,
    SolverWork,
    Termination,
    TerminationReason,
)
from libra_plan.planner.optimize.build_plan import build_plan
from libra_plan.planner.optimize.master import Budget
from libra_plan.planner.optimize.policies import POLICIES
from libra_plan.planner.optimize.solve_stages import SolveStage, StageRequest, solve_stage
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem

__all__ = ["solve_problem"]


def solve_problem(
    problem: Problem,
    params: SolveParams = SolveParams(),
    hint: Plan | None = None,
    *,
    shares_of: Problem | None = None,
    other_than: Plan | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SolveResult:
    """Find the best plan within the time limit, with its gap to the bound.

    The incumbent is never worse than the equal split, the greedy split and, when there is one,
    the running plan, as far as these keep what tasks require. Solving touches nothing; a time-out
    with an incumbent is a plan. `shares_of` measures throughput against the fair shares of another
    problem, so that the two objectives can be compared. With `other_than` the best plan is sought
    that is not this one.
    """
    policy = POLICIES[problem.policy]
    parts = policy.parts(problem)
    work = params.work or SolverWork()
    params = replace(params, work=work)
    ends = Budget.of(params.time_limit_s, clock, work)
    known = KnownConfigurations()
    stages: list[SolveStage] = []
    for number, part in enumerate(parts):
        left = len(parts) - number
        budget = ends if left == 1 else ends.part(left)
        request = StageRequest(
            problem,
            shares_of or problem,
            part,
            params,
            budget,
            hint,
            other_than if left == 1 else None,
            known,
        )
        stages.append(solve_stage(request, policy, _last_placed(stages)))
    last = _last_placed(stages)
    if last is None:
        return _nothing(stages)
    plan = build_plan(problem, policy, stages, last)
    reason = TerminationReason(plan.certificate.status.value)
    return SolveResult(plan, Termination(reason, f"gap {plan.certificate.gap:.2e}", plan.certificate.bound))


def _last_placed(stages: Sequence[SolveStage]) -> SolveStage | None:
    """Find the stage that has placed all running tasks so far."""
    return next((stage for stage in reversed(stages) if stage.choice), None)


def _nothing(stages: Sequence[SolveStage]) -> SolveResult:
    reasons = "; ".join(f"[{each.code}] {each.reason}" for stage in stages for each in stage.queued)
    if not any(each.candidates for stage in stages for each in stage.own):
        return SolveResult(None, Termination(TerminationReason.INFEASIBLE, reasons or "no task was given"))
    outcomes = [stage.outcome for stage in stages if stage.outcome is not None]
    bound = min((value for outcome in outcomes for value in outcome.bounds.values()), default=None)
    if bound == 0.0 or all(outcome.placed is not None or outcome.infeasible for outcome in outcomes):
        return SolveResult(None, Termination(TerminationReason.INFEASIBLE, reasons, bound))
    return SolveResult(None, Termination(TerminationReason.TIME_LIMIT, "no choice could be placed", bound))
