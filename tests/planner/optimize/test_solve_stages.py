"""One stage of a solve: what tiers leave to those below, ties, fewest moves, hints and the running plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from joint_cases import turns_problem

from libra_plan.errors import WorkloadError
from libra_plan.models.parallelism import Layout
from libra_plan.planner.configurations.known import KnownConfigurations
from libra_plan.planner.optimize import solve_stages
from libra_plan.planner.optimize.base import SolveParams, SolverWork
from libra_plan.planner.optimize.master import Budget
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.optimize.policies import POLICIES
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.optimize.solve_stages import (
    SolveStage,
    StageRequest,
    _hinted,
    _move_values,
    solve_stage,
)
from libra_plan.planner.plan import Plan, held_by
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, Policy, Problem, Task
from libra_plan.planner.tables import table_cluster, table_task

EXACT = SolveParams(gap=0.0, deterministic=True)
HALVED = {1: 8.0, 2: 4.0, 4: 2.0}


def _problem(*tasks: Task, gpus: int = 4, **more: object) -> Problem:
    return replace(Problem(table_cluster(gpus), tasks), **more)


def _one(name: str, weight: float = 1.0, **more: object) -> Task:
    """Make a task that runs on one GPU only."""
    return replace(table_task(name, weight, {"r": {1: 1.0}}), **more)


def _stage(problem: Problem, part: set[str], before: SolveStage | None = None) -> SolveStage:
    budget = Budget.of(10.0, lambda: 0.0, SolverWork())
    request = StageRequest(
        problem, problem, frozenset(part), EXACT, budget, None, None, KnownConfigurations()
    )
    return solve_stage(request, POLICIES[problem.policy], before)


def _solved(problem: Problem, **more: object) -> Plan:
    return solve_problem(problem, EXACT, **more).require_plan()  # type: ignore[arg-type]


def _at(problem: Problem, task: str, *indices: int) -> IncumbentTask:
    node = problem.cluster.nodes[0]
    replicas = tuple((node.gpus[index].id,) for index in indices)
    return IncumbentTask(task, (IncumbentRole("r", Layout(), replicas, "r"),))


# ---------------------------------------------------------------- stages


def test_a_stage_plans_its_part_and_keeps_what_was_settled() -> None:
    """The first tier takes 3 of 4 GPUs, so that a task of the second that wants 2 gets 1."""
    high = table_task("high", 1.0, {"r": {3: 1.0}})
    low = replace(table_task("low", 1.0, {"r": {1: 8.0, 2: 4.0}}), tier=1)
    problem = _problem(low, high, policy=Policy.PRIORITY)
    first = _stage(problem, {"high"})
    assert [each.task.id for each in first.own] == ["high"]
    second = _stage(problem, {"low"}, first)
    assert second.settled == 1
    assert [each.task.id for each in second.own] == ["low"]
    taken = {
        each.task.id: each.candidates[second.choice[t]].configuration.gpus
        for t, each in enumerate(second.search.tasks)
    }
    assert taken == {"high": 3, "low": 1}


def test_what_is_settled_counts_nothing_in_later_stages() -> None:
    """The objective of a stage is that of its own tasks; the settled one has to run all the same."""
    problem = _problem(_one("high", 5.0), _one("low", tier=1), policy=Policy.PRIORITY, gpus=2)
    first = _stage(problem, {"high"})
    second = _stage(problem, {"low"}, first)
    assert [entry.value for entry in second.search.tasks[0].candidates] == [0.0]
    row = next(row for row in second.search.constraints if row.name == "tier:high")
    assert (row.limit, row.coefficients) == (-1.0, {(0, 0): -1.0})


def test_a_stage_in_which_nothing_can_run_leaves_what_was_settled() -> None:
    """A task too large for the cluster waits, and the stage before is still placed."""
    problem = _problem(_one("high"), replace(table_task("low", 1.0, {"r": {9: 1.0}}), tier=1))
    problem = replace(problem, policy=Policy.PRIORITY)
    first = _stage(problem, {"high"})
    second = _stage(problem, {"low"}, first)
    assert second.outcome is None
    assert list(second.choice) == [0]
    assert [each.task for each in second.queued] == ["low"]


# ---------------------------------------------------------------- equals


def test_of_equals_the_heavier_task_runs() -> None:
    """Each is worth the same, being held against its weighted share; whoever comes first."""
    tasks = (_one("light", 1.0), _one("heavy", 2.0))
    for order in (tasks, tasks[::-1]):
        plan = _solved(_problem(*order, gpus=1))
        assert [running.task for running in plan.running] == ["heavy"]


def test_a_running_task_is_not_moved_for_a_heavier_one_of_equal_value() -> None:
    """The tie goes to what runs."""
    problem = _problem(_one("light", 1.0), _one("heavy", 2.0), gpus=1)
    running = replace(problem, running=(_at(problem, "light", 0),))
    assert [each.task for each in _solved(running).running] == ["light"]


def test_of_equal_plans_the_one_that_moves_least_is_taken() -> None:
    """A restart costs nothing here, yet both stay where they are."""
    problem = _problem(_one("a"), _one("b"))
    running = replace(problem, running=(_at(problem, "a", 3), _at(problem, "b", 1)))
    plan = _solved(running)
    assert not any(each.moved for each in plan.running)
    assert [each.gpus[0].index for each in plan.running] == [3, 1]


def test_a_gain_within_the_tolerance_is_given_up_for_a_move_less() -> None:
    """Two GPUs are a ten-millionth faster than one; two thousandths are worth the move."""
    for gain, moves in ((1e-7, False), (2e-3, True)):
        problem = _problem(table_task("a", 1.0, {"r": {1: 1.0, 2: 1.0 - gain}}))
        running = replace(problem, running=(_at(problem, "a", 0),))
        assert _solved(running).running[0].moved is moves


def test_staying_is_valued_above_moving_and_pausing_counts_as_moving_everything() -> None:
    """Of a running task the kept candidate has the most value; a waiting one's moves cost nothing."""
    task = table_task("a", 1.0, {"r": HALVED})
    (role,) = task.roles
    options = tuple(replace(option, static_mib=100.0) for option in role.options)
    task = replace(task, roles=(replace(role, options=options),))
    problem = _problem(task, replace(task, id="b"))
    problem = replace(problem, running=(_at(problem, "a", 0, 1),))
    tasks = candidates_of(problem, problem)
    values = _move_values(tasks)
    own = {c: values[0, c] for c in range(len(tasks[0].candidates))}
    kept = next(c for c, entry in enumerate(tasks[0].candidates) if entry.held)
    assert max(own, key=own.__getitem__) == kept
    assert min(own.values()) > 0.0  # so that running anywhere beats waiting
    moved = {
        entry.configuration.gpus: own[c] for c, entry in enumerate(tasks[0].candidates) if not entry.held
    }
    assert moved[1] > moved[2] > moved[4]
    assert all(-1.0 < values[1, c] <= 0.0 for c in range(len(tasks[1].candidates)))


# ---------------------------------------------------------------- hints


def test_a_hint_is_translated_only_when_all_of_it_is_known() -> None:
    """Beside settled tasks, what is unknown belongs to another stage."""
    flat = {"r": {1: 8.0, 2: 7.0}}
    problem = _problem(table_task("a", 1.0, flat), table_task("b", 1.0, flat), gpus=3)
    plan = _solved(problem)
    assert len(plan.running) == 2
    tasks = candidates_of(problem, problem)
    found = _hinted(tasks, plan, 0)
    assert found is not None
    for running, (t, c) in zip(plan.running, sorted(found.items()), strict=True):
        assert tasks[t].candidates[c].configuration.phases == running.configuration.phases
    assert _hinted(tasks[:1], plan, 0) is None
    assert _hinted(tasks[:1], plan, 1) == {0: found[0]}
    other = [replace(tasks[0], candidates=()), tasks[1]]
    assert _hinted(other, plan, 1) is None
    assert _hinted(tasks, None, 0) is None


def test_another_plan_is_another_one() -> None:
    """The best plan has all 4 GPUs, the next one 2 of them."""
    problem = _problem(table_task("a", 1.0, {"r": HALVED}))
    best = _solved(problem)
    other = _solved(problem, other_than=best)
    assert best.running[0].configuration.gpus == 4
    assert other.running[0].configuration.gpus == 2
    assert other.certificate.objective < best.certificate.objective


# ---------------------------------------------------------------- limits


def test_very_many_joint_configurations_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generation by dual prices knows no tasks that run jointly."""
    monkeypatch.setattr(solve_stages, "_MOST_JOINT", 1)
    with pytest.raises(WorkloadError, match="too many ways to run tasks that may share pools"):
        _solved(turns_problem())


def test_an_unchanged_plan_stays_as_it_is() -> None:
    """Nothing moves, and the bound is that of all configurations."""
    problem = _problem(table_task("a", 1.0, {"r": HALVED}), table_task("b", 2.0, {"r": HALVED}))
    plan = _solved(problem)
    again = _solved(replace(problem, running=held_by(plan)))
    assert not any(each.moved for each in again.running)
    assert [each.gpus for each in again.running] == [each.gpus for each in plan.running]
    assert again.certificate.bound >= again.certificate.objective
