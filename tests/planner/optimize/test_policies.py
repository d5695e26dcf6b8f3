"""Each policy's promise, against every plan there is of small random problems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle_policies import Run, Runs, able, cost, every_plan, only, total, wanted
from policy_problems import each_task, held_by, lab, option, problems, task, with_deadlines, with_quotas

from libra_plan.errors import ClusterError
from libra_plan.planner.optimize import backends
from libra_plan.planner.optimize.base import SolveParams, SolverBackend
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Deadline, Policy, Problem, Quota
from libra_plan.planner.verify import violations_of

NEAR = 1e-5

few = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.fixture(scope="module", autouse=True, params=["few", "many"])
def narrowed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ask everything of both masters: the one for few candidates, and the one that narrows many by prices."""
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "many":
            patched.setattr(backends, "MANY", 0)
        yield


def exact(solver: SolverBackend = SolverBackend.CP_SAT) -> SolveParams:
    alike = solver is SolverBackend.CP_SAT and backends.MANY > 0  # the others end by the clock
    return SolveParams(gap=0.0, time_limit_s=20.0, solver=solver, deterministic=alike)


def solved(problem: Problem, solver: SolverBackend = SolverBackend.CP_SAT) -> Plan:
    plan = solve_problem(problem, exact(solver)).plan
    assert plan is not None
    assert violations_of(problem, plan) == []
    return plan


def rates(problem: Problem, plan: Plan) -> dict[str, float]:
    found = dict.fromkeys(problem.task_of, 0.0)
    return found | {running.task: running.configuration.steps_per_s for running in plan.running}


def levels(problem: Problem, plan: Plan) -> dict[str, float]:
    found = dict.fromkeys(problem.task_of, 0.0)
    return found | {running.task: running.normalised for running in plan.running}


def best(plans: list[Runs], value: Callable[[Runs], float] = total) -> float:
    return max(map(value, plans), default=0.0)


# ---------------------------------------------------------------- max-min


@few
@given(problems(Policy.MAX_MIN))
def test_max_min_raises_nobody_at_the_expense_of_one_who_is_worse_off(problem: Problem) -> None:
    """Whatever plan raises a task above this one leaves another, which it lowers, no better off."""
    plan = solved(problem)
    now, can = levels(problem, plan), able(problem)
    for other in every_plan(problem):
        assert min(other[name].normalised for name in can) <= min(now[name] for name in can) * (1 + NEAR)
        for name in can:
            if other[name].normalised > now[name] * (1 + NEAR) + NEAR:
                assert any(
                    other[victim].normalised < now[victim]
                    and other[victim].normalised <= now[name] * (1 + NEAR)
                    for victim in can
                ), name


# ---------------------------------------------------------------- priority


@st.composite
def tiered(draw: st.DrawFn) -> Problem:
    problem = draw(problems(Policy.PRIORITY))
    return each_task(problem, [{"tier": draw(st.integers(0, 2))} for _ in problem.tasks])


@few
@given(tiered(), st.booleans())
def test_removing_a_lower_tier_changes_nothing_above_it(problem: Problem, replanned: bool) -> None:
    """Strict means strict: not by fair shares, not by ties, not by moves may a lower tier be felt."""
    plan = solved(problem)
    if replanned:
        tasks = tuple(replace(each, weight=each.weight + 0.3, restart_s=60.0) for each in problem.tasks)
        problem = replace(problem, tasks=tasks, running=held_by(plan))
        plan = solved(problem)
    for tier in sorted({each.tier for each in problem.tasks})[:-1]:
        above = {each.id for each in problem.tasks if each.tier <= tier}
        running = tuple(held for held in problem.running if held.task in above)
        alone = solve_problem(replace(only(problem, above), running=running), exact()).plan
        kept = {} if alone is None else {each.task: each.configuration for each in alone.running}
        assert {each.task: each.configuration for each in plan.running if each.task in above} == kept


@few
@given(tiered())
def test_every_tier_is_the_best_beside_those_above(problem: Problem) -> None:
    """A tier gets all it can use of what is left, the highest of everything there is."""
    plan = solved(problem)
    chosen = {each.task: each for each in plan.running}
    plans = every_plan(problem)
    for tier in sorted({each.tier for each in problem.tasks}):
        own = {each.id for each in problem.tasks if each.tier == tier}
        below = {each.id for each in problem.tasks if each.tier > tier}
        free = [runs for runs in plans if all(runs[name].worth == 0.0 for name in below)]
        worth = sum(problem.task_of[name].weight * chosen[name].normalised for name in own if name in chosen)
        assert worth == pytest.approx(best(free, lambda runs, own=own: total(runs, own)), rel=NEAR)
        plans = [runs for runs in plans if all(_is(runs[name], plan, name) for name in own)]


def _is(run: Run, plan: Plan, name: str) -> bool:
    running = next((each for each in plan.running if each.task == name), None)
    if running is None:
        return run.worth == 0.0
    blocks = running.configuration.blocks
    same = all(run.of_class(c) == sum(s * n for k, s, n in blocks if k == c) for c, _ in run.gpus)
    return same and run.normalised == pytest.approx(running.normalised)


def test_a_task_below_waits_for_the_tier_and_says_so() -> None:
    """Three GPUs for the first tier, two of four for the second: it waits, and the reason is the tier."""
    first = task("first", option(9.0), option(3.0, 3))
    second = task("second", option(1.0, 2), weight=50.0, tier=1)
    plan = solved(Problem(lab(4), (second, first), policy=Policy.PRIORITY))
    assert [each.task for each in plan.running] == ["first"]
    assert [(each.task, each.code) for each in plan.queued] == [("second", "tier")]
    assert [each.name for each in plan.certificate.passes] == ["tier 0", "tier 1"]


# ---------------------------------------------------------------- fair share


@few
@given(with_quotas(wide=False))
def test_no_team_is_worth_less_than_under_its_quota_alone(problem: Problem) -> None:
    """Borrowing is free for whoever lends: what a team alone reaches on its quota, it has beside all."""
    plan = solved(problem)
    quotas = {quota.team: quota.gpus for quota in problem.quotas}
    for share in plan.certificate.teams:
        own = {each.id for each in problem.tasks if (each.team or "-") == share.team}
        alone = [
            runs
            for runs in every_plan(problem, lambda each, run, own=own: run.worth == 0.0 or each.id in own)
            if sum(run.of_class(None) for run in runs.values()) <= quotas.get(share.team, 0)
        ]
        assert share.worth_at_quota == pytest.approx(best(alone), rel=NEAR)
        assert share.worth >= best(alone) * (1 - NEAR)


@few
@given(with_quotas())
def test_borrowing_takes_all_that_is_idle_and_nothing_more(problem: Problem) -> None:
    """Within quotas the sum is the best there is, and then the best that keeps every team's part of it."""
    plan = solved(problem)
    plans = every_plan(problem)
    teams = {each.id: each.team or "-" for each in problem.tasks}
    quotas = {quota.team: quota for quota in problem.quotas}

    def used(runs: Runs, team: str, gpu_class: str | None) -> int:
        return sum(run.of_class(gpu_class) for name, run in runs.items() if teams[name] == team)

    within = [
        runs
        for runs in plans
        if used(runs, "-", None) == 0
        and all(
            used(runs, team, None) <= quota.gpus
            and all(used(runs, team, name) <= most for name, most in quota.gpus_of_class)
            for team, quota in quotas.items()
        )
    ]
    shares = plan.certificate.teams
    assert sum(share.worth_at_quota for share in shares) == pytest.approx(best(within), rel=NEAR)
    kept = [
        runs
        for runs in plans
        if all(
            total(runs, {name for name, team in teams.items() if team == share.team})
            >= share.worth_at_quota * (1 - 1e-9)
            for share in shares
        )
    ]
    assert plan.certificate.objective == pytest.approx(best(kept), rel=NEAR)


def test_idle_gpus_are_borrowed_and_the_rest_waits_for_quota() -> None:
    """Blue uses one of its two GPUs; red's quota of two grows to three, and its third task waits."""
    red = [task(f"r{n}", option(4.0, n), team="red") for n in (2, 1, 2)]
    blue = task("blue", option(4.0, 1), team="blue")
    tasks = (*(replace(each, id=f"r{at}") for at, each in enumerate(red)), blue)
    quotas = (Quota("red", 2), Quota("blue", 2))
    plan = solved(Problem(lab(4), tasks, policy=Policy.FAIR_SHARE, quotas=quotas))
    shares = {share.team: (share.gpus, share.borrowed_gpus) for share in plan.certificate.teams}
    assert shares == {"red": (3, 1), "blue": (1, 0)}
    assert [each.code for each in plan.queued] == ["worth"]
    greedy = replace(tasks[1], id="rich", team=None, weight=90.0)
    plan = solved(Problem(lab(2), (tasks[0], greedy), policy=Policy.FAIR_SHARE, quotas=quotas[:1]))
    assert [(each.task, each.code) for each in plan.queued] == [("rich", "quota")]


# ---------------------------------------------------------------- budget


@few
@given(problems(Policy.THROUGHPUT), st.integers(0, 20))
def test_the_budget_is_kept_and_used(problem: Problem, halves: int) -> None:
    """No plan costs more than the budget, to the last cent, and none within it is worth more."""
    budget = halves / 2
    asked = replace(problem, budget_per_hour=budget)
    plans = [runs for runs in every_plan(problem) if cost(problem, runs) <= budget]
    plan = solve_problem(asked, exact()).plan
    if plan is None:
        assert best(plans) == 0.0
        return
    assert violations_of(asked, plan) == []
    told = plan.certificate.cost_per_hour
    assert told is not None
    assert told <= budget
    assert plan.certificate.objective == pytest.approx(best(plans), rel=NEAR)


@pytest.mark.parametrize("price", [0.1, 0.3, 2.99, 12.345])
def test_a_budget_of_exactly_the_price_is_enough(price: float) -> None:
    """Prices of cents must not fail for a rounding: three GPUs at 0.10 cost 0.30, whatever floats say."""
    each = task("t", option(3.0, 1), option(1.0, 3))
    cluster = lab(3, prices=(("a", price),))
    for gpus in (1, 3):
        plan = solved(Problem(cluster, (each,), budget_per_hour=round(gpus * price, 9)))
        assert plan.running[0].configuration.gpus == gpus


def test_what_the_budget_does_not_pay_for_waits_for_the_budget() -> None:
    """The code tells a missing coin from a missing GPU, and a missing price is refused by name."""
    tasks = (task("one", option(1.0, 2)), task("two", option(1.0, 2)))
    problem = Problem(lab(4), tasks, budget_per_hour=5.0)
    plan = solved(problem)
    assert [each.code for each in plan.queued] == ["budget"]
    nothing = solve_problem(replace(problem, budget_per_hour=3.0), exact())
    assert nothing.plan is None
    assert "[budget]" in nothing.termination.detail
    with pytest.raises(ClusterError, match="price of every GPU class"):
        solve_problem(replace(problem, cluster=lab(4, prices=())), exact())


# ---------------------------------------------------------------- deadlines


@few
@given(with_deadlines())
def test_deadlines_are_kept_whenever_they_can_be(problem: Problem) -> None:
    """All of them, or as many as any plan keeps, with the best rate that those given up could have."""
    plan = solved(problem)
    plans = every_plan(problem)
    asks = {each.id: wanted(each) for each in problem.tasks if wanted(each)}

    def met(steps_per_s: dict[str, float]) -> frozenset[str]:
        return frozenset(name for name, least in asks.items() if steps_per_s[name] >= least * (1 - 1e-9))

    kept = met(rates(problem, plan))
    of_plans = [met({name: run.steps_per_s for name, run in runs.items()}) for runs in plans]
    assert len(kept) == max(map(len, of_plans))
    missed = {slack.task: slack for slack in plan.certificate.deadlines}
    assert missed.keys() == asks.keys() - kept
    left = [runs for runs, those in zip(plans, of_plans, strict=True) if those >= kept]
    assert plan.certificate.objective == pytest.approx(best(left), rel=NEAR)
    for name, slack in missed.items():
        assert slack.best_alone_steps_per_s == pytest.approx(
            best(plans, lambda r, name=name: r[name].steps_per_s)
        )
        assert slack.best_beside_steps_per_s == pytest.approx(
            best(left, lambda r, name=name: r[name].steps_per_s)
        )


@pytest.mark.parametrize("solver", [SolverBackend.CP_SAT, SolverBackend.HIGHS])
@pytest.mark.parametrize("policy", list(Policy))
def test_a_deadline_holds_under_every_policy(policy: Policy, solver: SolverBackend) -> None:
    """Left alone no policy would give `slow` three of four GPUs; its deadline makes all of them do it."""
    slow = task("slow", option(3.0, 1), option(2.5, 3), weight=0.1, team="x", deadline=Deadline(4.0, 10.0))
    fast = task("fast", option(3.0, 1), option(1.0, 3), team="x")
    quotas = (Quota("x", 4),)
    plan = solved(Problem(lab(4), (slow, fast), policy=policy, quotas=quotas), solver)
    assert {each.task: each.configuration.gpus for each in plan.running} == {"slow": 3, "fast": 1}
    free = replace(slow, deadline=None)
    plan = solved(Problem(lab(4), (free, fast), policy=policy, quotas=quotas), solver)
    assert {each.task: each.configuration.gpus for each in plan.running} == {"slow": 1, "fast": 3}


def test_who_would_make_a_deadline_fail_waits_for_it() -> None:
    """The better task waits, and is told that a deadline is why."""
    late = task("late", option(2.0, 2), weight=0.1, min_steps_per_s=0.5)
    rich = task("rich", option(1.0, 1), weight=9.0)
    plan = solved(Problem(lab(2), (late, rich)))
    assert [(each.task, each.code) for each in plan.queued] == [("rich", "deadline")]


def test_a_move_takes_its_part_of_the_time_that_is_left() -> None:
    """Ten steps of 1 s in 15 s: kept as it is that holds; moved, 10 s are lost and it does not."""
    each = task("t", option(1.2, 1), option(1.0, 2), deadline=Deadline(10.0, 15.0), restart_s=10.0)
    plan = solved(Problem(lab(2), (replace(each, max_gpus=1),)))
    running = held_by(plan)
    plan = solved(Problem(lab(2), (each,), running=running, horizon_s=1e6))
    assert (plan.running[0].configuration.gpus, plan.running[0].moved) == (1, False)
    assert plan.certificate.deadlines == ()


# ---------------------------------------------------------------- latency first


@st.composite
def with_latency(draw: st.DrawFn) -> Problem:
    problem = draw(problems(Policy.THROUGHPUT))
    return each_task(problem, [{"latency_first": draw(st.booleans())} for _ in problem.tasks])


@few
@given(with_latency())
def test_evaluations_come_first_and_the_policy_gets_the_rest(problem: Problem) -> None:
    """As many as can be run, in the least time together; then the sum is the best that leaves them so."""
    plan = solved(problem)
    marked = [each for each in problem.tasks if each.latency_first]
    now = rates(problem, plan)
    run = [each for each in marked if now[each.id]]
    plans = every_plan(problem)
    assert len(run) == max(sum(runs[each.id].worth > 0 for each in marked) for runs in plans)
    beside = [runs for runs in plans if all(runs[each.id].worth > 0 for each in run)]
    if run:
        least = min(sum(each.weight / runs[each.id].steps_per_s for each in run) for runs in beside)
        assert sum(each.weight / now[each.id] for each in run) == pytest.approx(least, rel=NEAR)
    left = [runs for runs in beside if all(runs[e.id].steps_per_s >= now[e.id] * (1 - 1e-9) for e in run)]
    assert plan.certificate.objective == pytest.approx(best(left), rel=NEAR)


# ---------------------------------------------------------------- aging


@settings(few, max_examples=8)
@given(problems(Policy.THROUGHPUT), st.sampled_from([Policy.THROUGHPUT, Policy.MAX_MIN]))
def test_every_queued_task_runs_one_day(problem: Problem, policy: Policy) -> None:
    """Looked at every ten minutes, whatever can run at all has run after finitely many looks."""
    problem = replace(problem, policy=policy, aging_s=1200.0, horizon_s=600.0)
    tasks = tuple(replace(each, restart_s=30.0) for each in problem.tasks)
    missing, waited, running = able(problem), dict.fromkeys(problem.task_of, 0.0), ()
    for _ in range(60):
        now = tuple(replace(each, waited_s=waited[each.id]) for each in tasks)
        plan = solve_problem(replace(problem, tasks=now, running=running), exact()).require_plan()
        runs = {each.task for each in plan.running}
        waited = {name: 0.0 if name in runs else seconds + 600.0 for name, seconds in waited.items()}
        missing -= runs
        running = held_by(plan)
        if not missing:
            return
    raise AssertionError(f"{missing} never ran")


def test_without_aging_the_heavier_task_keeps_the_gpu_for_ever() -> None:
    """The loop above would not end by itself: only waiting makes the light task worth the GPU."""
    tasks = (task("heavy", option(1.0, 2), weight=3.0), task("light", option(1.0)))
    never = Problem(lab(2), (tasks[0], replace(tasks[1], waited_s=1e6)))
    assert [each.task for each in solved(never).running] == ["heavy"]
    assert [each.task for each in solved(replace(never, aging_s=1e5)).running] == ["light"]
