"""The verifier recomputes what a certificate claims: lies about worth and bound are refused at every size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from random_problems import random_problem, with_running

from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import DeadlineSlack, Plan, QueuedTask, Status
from libra_plan.planner.problem import Coupling, CouplingKind, Policy, Problem, Role, Task
from libra_plan.planner.tables import TABLE_CLASS, table_cluster, table_role
from libra_plan.planner.verify import check_plan, violations_of

SIZES = ((8, 2), (24, 4), (256, 24), (10_000, 400))
EXACT = SolveParams(gap=1e-9, time_limit_s=30.0)


@cache
def solved(gpus: int, tasks: int) -> tuple[Problem, Plan]:
    """Plan tasks of a dozen kinds, whose rollout and training may be apart or take turns, on nodes of 8."""
    rng = np.random.default_rng(gpus)
    kinds = [_kind(rng) for _ in range(12)]
    named = tuple(
        replace(kinds[number % 12], id=f"t{number}", weight=float(rng.uniform(1.0, 4.0)))
        for number in range(tasks)
    )
    problem = Problem(table_cluster(gpus, 8), named)
    params = EXACT if gpus <= 24 else SolveParams(gap=1e-3, time_limit_s=30.0)
    return problem, solve_problem(problem, params).require_plan()


def _kind(rng: np.random.Generator) -> Task:
    roles = []
    for name, work in (("rollout", rng.uniform(200, 4000)), ("actor", rng.uniform(100, 2000))):
        options = []
        for size in (1, 2, 4)[int(rng.integers(2)) :]:
            power = rng.uniform(0.6, 0.9)
            seconds = {n * size: work / (n * size) ** power for n in (1, 2, 3, 4, 6, 8, 12)}
            options += table_role(name, seconds, replica_gpus=size).options
        roles.append(Role(name, "rollout", tuple(options)))
    kind = CouplingKind.ASYNC if rng.random() < 0.5 else CouplingKind.SYNC
    return Task("", 1.0, tuple(roles), Coupling(kind, int(kind is CouplingKind.ASYNC)))


@pytest.mark.parametrize(("gpus", "tasks"), SIZES)
def test_honest_bounds_are_proven_at_every_size(gpus: int, tasks: int) -> None:
    """A verifier that proves nothing would refuse no lie either."""
    problem, plan = solved(gpus, tasks)
    verdict = check_plan(problem, plan)
    assert verdict.violations == ()
    assert verdict.proof.proven
    assert verdict.proof.bound is not None
    assert verdict.proof.bound <= plan.certificate.bound * (1 + 1e-5)


def claimed_optimal(problem: Problem, plan: Plan) -> Plan:
    """Another plan, said to be the best one."""
    if len(problem.tasks) <= 4:
        other = solve_problem(problem, EXACT, other_than=plan).require_plan()
    else:
        *kept, last = plan.running
        waits = QueuedTask(last.task, "capacity", "no room")
        other = replace(plan, running=tuple(kept), queued=(*plan.queued, waits))
    worth = sum(problem.task_of[each.task].weight * each.normalised for each in other.running)
    return replace(other, certificate=_told(plan, worth, worth))


def ten_times(_: Problem, plan: Plan) -> Plan:
    """All throughputs, the objective and the bound ten times what they are."""
    running = tuple(replace(each, normalised=10 * each.normalised) for each in plan.running)
    proof = plan.certificate
    return replace(plan, running=running, certificate=_told(plan, 10 * proof.objective, 10 * proof.bound))


def other_duals(_: Problem, plan: Plan) -> Plan:
    """Dual prices that prove less than the bound."""
    duals = tuple((name, 0.5 * price) for name, price in plan.certificate.duals)
    return replace(plan, certificate=replace(plan.certificate, duals=duals))


def too_low(_: Problem, plan: Plan) -> Plan:
    """Claim a bound that the plan itself exceeds."""
    worth = plan.certificate.objective
    return replace(plan, certificate=_told(plan, worth, 0.99 * worth))


def _told(plan: Plan, objective: float, bound: float) -> object:
    gap = max(0.0, (bound - objective) / objective)
    return replace(
        plan.certificate,
        status=Status.OPTIMAL,
        objective=objective,
        bound=bound,
        gap=gap,
        bounds=(("lp", bound),),
        baselines=(),
    )


@pytest.mark.parametrize(("gpus", "tasks"), SIZES)
@pytest.mark.parametrize("lie", [claimed_optimal, ten_times, other_duals, too_low])
def test_lies_about_worth_and_bound_are_refused(
    gpus: int, tasks: int, lie: Callable[[Problem, Plan], Plan]
) -> None:
    """A certificate that nobody recomputes is only a claim, whoever wrote it."""
    problem, plan = solved(gpus, tasks)
    assert violations_of(problem, lie(problem, plan)) != []


@pytest.mark.parametrize(("gpus", "tasks"), SIZES)
def test_a_bound_that_a_solver_claims_is_not_called_proven(gpus: int, tasks: int) -> None:
    """A worse plan that some solver calls optimal is refused: a better one is found."""
    problem, plan = solved(gpus, tasks)
    worse = claimed_optimal(problem, plan)
    named = (("cp-sat", worse.certificate.bound),)
    verdict = check_plan(problem, replace(worse, certificate=replace(worse.certificate, bounds=named)))
    assert verdict.violations != () or not verdict.proof.proven
    assert verdict.violations != ()  # one task that may run waits, or a search of all finds a better plan


@pytest.mark.parametrize("first", range(7000, 7120, 40))
def test_bounds_of_random_problems_are_recomputed(first: int) -> None:
    """Pins, shapes, sleeping, running plans: what the solver proves by prices, prices prove here too."""
    proven = 0
    for seed in range(first, first + 40):
        problem = random_problem(seed)
        plan = solve_problem(problem, EXACT).plan
        if plan is None:
            continue
        proven += _proven(problem, plan)
        again = with_running(problem, plan, seed)
        plan = solve_problem(again, EXACT).plan
        proven += plan is not None and _proven(again, plan)
    assert proven > 25  # of those 40 that have a plan, and of their running ones


def _proven(problem: Problem, plan: Plan) -> bool:
    verdict = check_plan(problem, plan)
    assert verdict.violations == ()
    return verdict.proof.proven


def test_bounds_on_the_least_throughput_are_recomputed() -> None:
    """Under `max-min` dual prices weigh the throughputs, and their mean bounds the least."""
    proven = 0
    for seed in range(7000, 7060):
        problem = random_problem(seed, Policy.MAX_MIN)
        plan = solve_problem(problem, EXACT).plan
        if plan is None:
            continue
        proven += _proven(problem, plan)
        claims = replace(plan.certificate, duals=tuple((name, 0.0) for name, _ in plan.certificate.duals))
        assert not check_plan(problem, replace(plan, certificate=claims)).proof.proven
    assert proven > 10


def test_bounds_within_a_budget_are_recomputed() -> None:
    """Money is one more constraint, and its price makes every GPU dearer by what it costs."""
    problem, _ = solved(24, 4)
    priced = replace(problem.cluster, price_per_gpu_hour=((TABLE_CLASS, 2.5),))
    tight = replace(problem, cluster=priced, budget_per_hour=31.0)
    plan = solve_problem(tight, EXACT).require_plan()
    verdict = check_plan(tight, plan)
    assert verdict.violations == ()
    assert verdict.proof.bound is not None
    without = check_plan(problem, solved(24, 4)[1]).proof.bound
    assert without is not None
    assert verdict.proof.bound < 0.9 * without


@pytest.mark.parametrize("price", [np.inf, -np.inf, np.nan, 1e308])
def test_prices_that_are_no_numbers_prove_nothing(price: float) -> None:
    """At an infinite price every way loses too much to be looked at: no proof that none is better."""
    tried = 0
    for seed in (13, 15, 19, 39):
        problem = random_problem(seed)
        best = solve_problem(problem, EXACT).require_plan()
        worse = solve_problem(problem, EXACT, other_than=best).require_plan()
        worth = sum(problem.task_of[each.task].weight * each.normalised for each in worse.running)
        assert worth < 0.99 * best.certificate.objective
        duals = tuple((f"gpus:{name}:1", price) for name in problem.cluster.gpu_classes)
        claims = replace(_told(worse, worth, worth), bounds=(("cp-sat", worth),), duals=duals)
        verdict = check_plan(problem, replace(worse, certificate=claims))
        assert not verdict.proof.proven
        tried += verdict.violations != ()
    assert tried == 4 or np.isfinite(price)


@pytest.mark.parametrize("infinite", [{"bound": np.inf}, {"gap": np.inf}, {"bounds": (("lp", np.inf),)}])
def test_a_certificate_of_numbers_that_are_not_finite_is_refused(infinite: dict[str, object]) -> None:
    """No gap can be told of an infinite bound."""
    problem, plan = solved(8, 2)
    claims = replace(plan.certificate, status=Status.FEASIBLE, **{"bounds": (), **infinite})
    assert {each.code for each in violations_of(problem, replace(plan, certificate=claims))} == {"bound"}


@pytest.mark.parametrize("name", ["level:nobody", "level:unable"])
def test_levels_of_tasks_that_do_not_count_prove_nothing(name: str) -> None:
    """Weight on a task that is not there, or cannot run, would make the mean as small as one likes."""
    problem = random_problem(28, Policy.MAX_MIN)
    unable = replace(problem.tasks[0], id="unable", roles=(Role("r", "rollout"),))
    problem = replace(problem, tasks=(*problem.tasks, unable))
    best = solve_problem(problem, EXACT).require_plan()
    worse = solve_problem(problem, EXACT, other_than=best).require_plan()
    least = min(each.normalised for each in worse.running)
    assert len(worse.queued) == 1
    assert least < 0.99 * best.certificate.objective
    duals = (*best.certificate.duals, (name, 1e6))
    claims = replace(_told(worse, least, least), bounds=(("cp-sat", least),), duals=duals)
    verdict = check_plan(problem, replace(worse, certificate=claims))
    assert not verdict.proof.proven
    assert verdict.proof.bound is None or verdict.proof.bound >= best.certificate.objective * (1 - 1e-6)


def test_giving_up_a_deadline_is_not_called_proven() -> None:
    """A plan may say that it misses a deadline which another plan keeps, and be worth more for it."""
    slow = replace(_two_options("slow", 10.0, 9.0), min_steps_per_s=0.11)
    fast = replace(_two_options("fast", 10.0, 1.0), weight=3.0)
    problem = Problem(table_cluster(3, 3), (slow, fast))
    honest = solve_problem(problem, EXACT).require_plan()
    assert check_plan(problem, honest).proof.proven
    free = replace(problem, tasks=(replace(slow, min_steps_per_s=None), fast))
    other = solve_problem(free, EXACT).require_plan()
    rate = next((r.configuration.steps_per_s for r in other.running if r.task == "slow"), 0.0)
    assert rate < 0.11
    missed = (DeadlineSlack("slow", 0.11, rate, None, None),)
    claims = replace(other, certificate=replace(other.certificate, deadlines=missed))
    assert not check_plan(problem, claims).proof.proven


def _two_options(name: str, on_one_s: float, on_two_s: float) -> Task:
    return Task(name, 1.0, (table_role("r", {1: on_one_s, 2: on_two_s}),), Coupling(CouplingKind.SYNC))
