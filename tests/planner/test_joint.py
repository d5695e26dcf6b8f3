"""Tasks that run jointly: what a round takes, what it is worth, and what the verifier does not let pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joint_cases import CASES, EXACT, cluster, held, solved, task, turns_problem
from oracle import best_throughput
from oracle_joint import best_jointly
from random_problems import random_problem, with_sharing
from random_problems import with_running as with_changes

from libra_plan.errors import WorkloadError
from libra_plan.planner.explain import explain_plan
from libra_plan.planner.optimize import solve_stages
from libra_plan.planner.optimize.base import SolverBackend
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Coupling, CouplingKind, Deadline, Policy, Quota, Sharing, SharingKind
from libra_plan.planner.verify import violations_of

NEAR = 2e-6  # CP-SAT counts worth in millionths of the largest


def running(plan, name):
    return next(each for each in plan.running if each.task == name)


# ---------------------------------------------------------------- what a round takes


def test_two_tasks_take_turns_in_two_slots():
    """A round is two slots and both hand-overs: max(6, 7) + max(3, 4) + 0.5 + 0.5 = 12 s for each task."""
    problem = turns_problem()
    plan = solved(problem)
    assert violations_of(problem, plan) == []
    assert [each.configuration.step_time_s.value for each in plan.running] == pytest.approx([12.0, 12.0])
    (run,) = plan.joint
    assert [[choice.role for choice in pool.choices] for pool in run.configuration.phases[0].pools] == [
        ["math/rollout", "code/rollout"],
        ["math/actor", "code/actor"],
    ]
    assert running(plan, "math").gpus == running(plan, "code").gpus


def test_their_worths_add_up():
    """Alone each takes 10.5 s on twice its share: together 2 · 10.5 / 12 each, where one alone is worth 2."""
    plan = solved(turns_problem())
    assert plan.certificate.objective == pytest.approx(4 * 10.5 / 12)
    assert solved(replace(turns_problem(), sharing=())).certificate.objective == pytest.approx(2.0)


@pytest.mark.parametrize("make", CASES.values())
def test_tasks_of_teams_with_quotas_share(make):
    """Quotas bind under fair-share alone; with them declared, a plan with sharing ended in a KeyError."""
    problem = make()
    teams = tuple(replace(task, team=name) for task, name in zip(problem.tasks, ("red", "blue"), strict=True))
    problem = replace(problem, tasks=teams, quotas=(Quota("red", 1), Quota("blue", 1)))
    plan = solved(problem)
    assert violations_of(problem, plan) == []
    assert len(plan.joint) == 1
    assert plan.certificate.teams == ()


def test_bounds_of_the_step_follow_the_same_law():
    """Optimism and pessimism are summed like the value: 0.9 and 1.2 times the slots, and the hand-overs."""
    step = running(solved(turns_problem()), "math").configuration.step_time_s
    assert (step.low, step.high) == pytest.approx((0.9 * 11 + 1, 1.2 * 11 + 1))


def test_states_that_do_not_fit_side_by_side_go_to_sleep():
    """On GPUs of 480 MiB two states of 200 and a peak of 300 do not fit; asleep they do, at 0.5 s a role."""
    problem = replace(turns_problem(), cluster=cluster(2, memory_mib=480.0))
    plan = solved(problem)
    assert violations_of(problem, plan) == []
    modes = {pool.memory_mode for pool in plan.joint[0].configuration.phases[0].pools}
    assert modes == {MemoryMode.SLEEP}
    assert running(plan, "code").configuration.step_time_s.value == pytest.approx(7.5 + 4.5 + 1.0)


def test_tasks_that_cannot_share_memory_do_not_share():
    """A GPU without room for one at work beside the other asleep is no place for both."""
    problem = replace(turns_problem(), cluster=cluster(2, memory_mib=340.0))
    plan = solved(problem)
    assert plan.joint == ()
    assert [each.code for each in plan.queued] == ["worth"]


# ---------------------------------------------------------------- the optimum


def check_optimum(seed):
    problem = with_sharing(random_problem(seed), seed)
    result = solve_problem(problem, EXACT).plan
    best = best_jointly(problem)
    if result is None:
        assert best == 0.0
        return
    assert violations_of(problem, result) == []
    assert result.certificate.objective == pytest.approx(best, rel=NEAR, abs=NEAR)
    assert result.certificate.bound >= best * (1 - 1e-9)
    assert best >= best_throughput(replace(problem, sharing=())) - NEAR


def small(seed, most_gpus=8):
    problem = with_sharing(random_problem(seed), seed)
    return problem.sharing and len(problem.cluster.gpus) <= most_gpus


@pytest.mark.parametrize("seed", [seed for seed in range(120) if small(seed, 6)][:12])
def test_plan_is_the_best_there_is(seed):
    """Every way to run every set of tasks, jointly and apart, is tried by code that shares none of ours."""
    check_optimum(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 240, 40))
def test_many_plans_are_the_best_there_are(first):
    """The same over more problems."""
    for seed in range(first, first + 40):
        if small(seed):
            check_optimum(seed)


@settings(max_examples=10, deadline=None)
@given(st.integers(1000, 100_000))
def test_sharing_never_lowers_the_optimum(seed):
    """What may be shared need not be: the plan is at least as good as without, and holds."""
    problem = with_sharing(random_problem(seed), seed)
    if len(problem.cluster.gpus) > 8:
        return
    with_, without = (solve_problem(each, EXACT).plan for each in (problem, replace(problem, sharing=())))
    least = 0.0 if without is None else without.certificate.objective
    assert with_ is not None or without is None
    if with_ is not None:
        assert violations_of(problem, with_) == []
        assert with_.certificate.objective >= least - NEAR * max(1.0, least)


# ---------------------------------------------------------------- a running plan


@pytest.mark.parametrize("case", CASES)
def test_what_runs_jointly_goes_on(case):
    """An unchanged problem gives an unchanged plan, and nothing moves."""
    problem = CASES[case]()
    plan = solved(problem)
    again = replace(problem, running=held(plan))
    kept = solved(again)
    assert violations_of(again, kept) == []
    assert [(each.roles, each.cpu, each.moved) for each in kept.running] == [
        (each.roles, each.cpu, False) for each in plan.running
    ]
    assert kept.certificate.objective == pytest.approx(plan.certificate.objective)


@pytest.mark.parametrize("case", CASES)
def test_leaving_a_joint_run_is_a_move(case):
    """A task that shared its GPUs starts anew without the other, even on the same GPUs."""
    problem = CASES[case]()
    apart = replace(problem, running=held(solved(problem)), sharing=())
    plan = solved(apart)
    assert violations_of(apart, plan) == []
    assert all(each.moved for each in plan.running)


def test_beginning_to_share_is_a_move():
    """A task that runs alone starts anew when another one joins it."""
    problem = turns_problem()
    alone = solved(replace(problem, sharing=()))
    joining = replace(problem, running=held(alone))
    plan = solved(joining)
    assert violations_of(joining, plan) == []
    assert [each.moved for each in plan.running] == [
        each.task == alone.running[0].task for each in plan.running
    ]


def test_changed_worlds_give_sound_plans():
    """Weights change, a GPU or a member is gone: what runs jointly goes on, moves or parts, and all holds."""
    for seed in range(3, 120, 3):
        problem = with_sharing(random_problem(seed), seed)
        if len(problem.cluster.gpus) > 6:
            continue
        before = solve_problem(problem, EXACT).plan
        if before is None or not before.joint:
            continue
        changed = with_changes(problem, before, seed)
        after = solve_problem(changed, EXACT).plan
        assert after is None or violations_of(changed, after) == []


# ---------------------------------------------------------------- the verifier


def with_running(plan, name, **changes):
    return replace(
        plan,
        running=tuple(replace(each, **changes) if each.task == name else each for each in plan.running),
    )


def with_run(plan, **changes):
    return replace(plan, joint=(replace(plan.joint[0], **changes),))


def faster(plan):
    configuration = plan.joint[0].configuration
    return with_run(
        plan, configuration=replace(configuration, step_time_s=configuration.step_time_s.scaled(0.9))
    )


TAMPERED = {
    "joint-undeclared": lambda plan: with_run(plan, tasks=plan.joint[0].tasks[::-1]),
    "joint-missing": lambda plan: replace(plan, running=plan.running[:1]),
    "joint-twice": lambda plan: replace(plan, joint=plan.joint * 2),
    "step-time": faster,
    "joint-part": lambda plan: with_running(
        plan, plan.running[1].task, configuration=replace(plan.running[1].configuration, peak_mib=1.0)
    ),
    "normalised": lambda plan: with_running(plan, plan.running[0].task, normalised=9.0),
    "moved": lambda plan: with_running(plan, plan.running[0].task, moved=True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("code", TAMPERED)
def test_tampered_plans_are_found(case, code):
    """Whoever claims more than the options of both tasks make is told so."""
    problem = CASES[case]()
    assert code in {each.code for each in violations_of(problem, TAMPERED[code](solved(problem)))}


def test_sharing_that_is_not_told_is_found():
    """Two tasks on the same GPUs are an error unless the plan says that they share them."""
    problem = turns_problem()
    codes = {each.code for each in violations_of(problem, replace(solved(problem), joint=()))}
    assert codes >= {"gpu-shared"}


def test_pool_without_room_for_the_other_state_is_found():
    """Memory is that of both tasks: on a smaller GPU the same plan does not hold."""
    problem = turns_problem()
    plan = solved(problem)
    codes = {
        each.code for each in violations_of(replace(problem, cluster=cluster(2, memory_mib=450.0)), plan)
    }
    assert "memory" in codes


# ---------------------------------------------------------------- beside other things


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("solver", [SolverBackend.HIGHS, SolverBackend.CBC])
def test_other_solvers_choose_as_well(case, solver):
    """Rows over candidates of several tasks are the same rows for every solver."""
    problem = CASES[case]()
    plan = solve_problem(problem, replace(EXACT, solver=solver, deterministic=False)).require_plan()
    assert violations_of(problem, plan) == []
    assert plan.certificate.objective == pytest.approx(solved(problem).certificate.objective, rel=NEAR)


@pytest.mark.parametrize("case", CASES)
def test_shared_gpus_are_paid_once(case):
    """Two tasks on the same GPUs cost no more than the GPUs do, and a budget for those is enough."""
    problem = CASES[case]()
    gpus = len(problem.cluster.gpus)
    priced = replace(
        problem,
        cluster=replace(problem.cluster, price_per_gpu_hour=(("a", 3.0),)),
        budget_per_hour=3.0 * gpus,
    )
    plan = solved(priced)
    assert violations_of(priced, plan) == []
    assert plan.joint
    assert plan.certificate.cost_per_hour == pytest.approx(3.0 * gpus)


def test_a_third_task_waits_for_what_two_share():
    """A task that is left out is told what it would cost, joint tasks included."""
    tasks = (*turns_problem().tasks, replace(task("prose", 5.0, 5.0), weight=0.1))
    problem = replace(turns_problem(), tasks=tasks)
    plan = solved(problem)
    assert violations_of(problem, plan) == []
    assert [(each.task, each.code) for each in plan.queued] == [("prose", "worth")]


def test_a_task_in_two_sets_runs_in_one():
    """Sets may overlap; a task shares with one partner, or none."""
    tasks = (*turns_problem().tasks, task("prose", 5.0, 5.0))
    pairs = [("math", "code"), ("code", "prose"), ("math", "prose")]
    sharing = tuple(Sharing(SharingKind.TURNS, pair) for pair in pairs)
    problem = replace(turns_problem(), tasks=tasks, sharing=sharing)
    plan = solved(problem)
    assert violations_of(problem, plan) == []
    assert len(plan.joint) == 1
    assert len(plan.queued) == 1
    assert plan.certificate.objective == pytest.approx(best_jointly(problem), rel=NEAR)


def test_explanation_names_whom_a_task_waits_for():
    """What binds a task that shares is the other's work, not its own layouts."""
    problem, said = turns_problem(), "a round has one step of each"
    explained = explain_plan(problem, solved(problem), EXACT)
    assert all(said in each.binding for each in explained.tasks)
    assert explained.next_best is not None
    assert any("waits" in each or "instead of" in each for each in explained.next_best.differs)


# ---------------------------------------------------------------- what is refused


def test_more_configurations_than_the_master_takes_are_refused(monkeypatch):
    """Configuration generation knows no joint tasks, so there is an end, and it is told."""
    monkeypatch.setattr(solve_stages, "_MOST_JOINT", 2)
    with pytest.raises(WorkloadError, match="too many ways"):
        solve_problem(turns_problem(), EXACT)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"coupling": Coupling(CouplingKind.ASYNC, staleness=1)}, "only sync tasks"),
        ({"deadline": Deadline(1.0, 10.0)}, "`deadline`"),
        ({"min_gpus": 2}, "`min_gpus`"),
        ({"latency_first": True}, "`latency_first`"),
        ({"roles": turns_problem().tasks[0].roles[:1]}, "its pool is never free"),
    ],
)
def test_what_holds_for_a_task_alone_is_refused(change, said):
    """A demand that a joint configuration could break is not dropped in silence."""
    problem = turns_problem()
    tasks = tuple(replace(each, **change) for each in problem.tasks)
    with pytest.raises(WorkloadError, match=said):
        solve_problem(replace(problem, tasks=tasks), EXACT)


def test_other_policies_refuse_sharing():
    """Max-min and the others weigh tasks one by one; they say so rather than ignore what was declared."""
    with pytest.raises(WorkloadError, match="max-min"):
        solve_problem(replace(turns_problem(), policy=Policy.MAX_MIN), EXACT)
