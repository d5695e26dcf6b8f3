"""Tasks that run jointly: which sets are refused, what each holds, and the part that each is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from joint_cases import held, solved, turns_problem

from libra_plan.errors import WorkloadError
from libra_plan.planner.configurations.joint import JointTask
from libra_plan.planner.optimize.joint import (
    held_jointly,
    joint_tasks,
    own_configuration,
    own_roles,
    own_shares,
    shares_now,
    starts_anew,
)
from libra_plan.planner.optimize.objective import priced_tasks
from libra_plan.planner.plan import CpuShare, PlacedRole
from libra_plan.planner.problem import Coupling, CouplingKind, Deadline, Policy, Problem


def _joint(problem: Problem) -> JointTask:
    (found,) = joint_tasks(problem, ("math", "code"))
    return found


def _running() -> Problem:
    problem = turns_problem()
    return replace(problem, running=held(solved(problem)))


def _placed_jointly(problem: Problem) -> list[PlacedRole]:
    return [
        replace(role, role=f"{running.task}/{role.role}")
        for running in solved(problem).running
        for role in running.roles
    ]


def test_a_set_is_made_a_task_when_all_of_it_is_there() -> None:
    """Half of a set is none."""
    problem = turns_problem()
    assert [member.id for member in _joint(problem).members] == ["math", "code"]
    assert joint_tasks(problem, ("math",)) == []
    assert joint_tasks(replace(problem, sharing=()), ("math", "code")) == []


def test_other_policies_refuse_sharing() -> None:
    """They plan every task on its own."""
    with pytest.raises(WorkloadError, match="max-min plans every task on its own"):
        _joint(replace(turns_problem(), policy=Policy.MAX_MIN))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"coupling": Coupling(CouplingKind.PIPELINED, groups=2)}, "only sync tasks"),
        ({"deadline": Deadline(1.0, 60.0)}, "`deadline`"),
        ({"min_steps_per_s": 0.1}, "`min_steps_per_hour`"),
        ({"min_gpus": 2}, "`min_gpus`"),
        ({"latency_first": True}, "`latency_first`"),
    ],
)
def test_what_holds_for_a_task_on_its_own_is_refused(change: dict[str, object], said: str) -> None:
    """The error names the task and what it asks."""
    problem = turns_problem()
    first, second = problem.tasks
    with pytest.raises(WorkloadError, match=said) as caught:
        _joint(replace(problem, tasks=(replace(first, **change), second)))  # type: ignore[arg-type]
    assert "math" in str(caught.value)


def test_a_task_with_one_role_on_gpus_is_refused() -> None:
    """Its pool is never free for another."""
    problem = turns_problem()
    first, second = problem.tasks
    with pytest.raises(WorkloadError, match="one role on GPUs"):
        _joint(replace(problem, tasks=(first, replace(second, roles=second.roles[:1]))))


def test_what_they_hold_jointly_is_named_by_task_and_role() -> None:
    """Only where each holds GPUs of the other."""
    problem = _running()
    found = held_jointly(problem, _joint(problem))
    assert found is not None
    assert [role.role for role in found.roles] == [
        f"{task}/{role}" for task in ("math", "code") for role in ("rollout", "actor")
    ]
    assert {share.role for share in found.workers} == {"math/env"}
    assert held_jointly(replace(problem, running=problem.running[:1]), _joint(problem)) is None
    assert shares_now(problem, "math")
    assert not shares_now(replace(problem, running=()), "math")


def test_keeping_is_worth_the_weights_and_moving_what_restarts_leave_of_them() -> None:
    """Both restart in 600 s of a horizon of 1,000: moved they are worth 0.4 of what they are worth kept."""
    first, second = turns_problem().tasks
    problem = replace(
        _running(), tasks=(replace(first, weight=3.0), replace(second, weight=2.0)), horizon_s=1000.0
    )
    *alone, jointly = priced_tasks(problem, problem)
    per_step = sum(each.task.weight / each.reference for each in alone if each.reference is not None)
    entries = jointly.candidates().candidates
    assert {entry.held is None for entry in entries} == {True, False}
    for entry in entries:
        left = 0.4 if entry.held is None else 1.0
        assert entry.value == pytest.approx(left * per_step * entry.configuration.steps_per_s)


def test_waiting_members_count_more_and_restart_nothing() -> None:
    """One has waited half of `aging_s`: its weight counts one and a half times."""
    first, second = turns_problem().tasks
    problem = replace(turns_problem(), tasks=(replace(first, waited_s=30.0), second), aging_s=60.0)
    *alone, jointly = priced_tasks(problem, problem)
    per_step = sum(k / each.reference for k, each in zip((1.5, 1.0), alone, strict=True) if each.reference)
    for entry in jointly.candidates().candidates:
        assert entry.value == pytest.approx(per_step * entry.configuration.steps_per_s)


def test_each_member_is_told_its_own_part() -> None:
    """Its roles under their own names, in pools as large as they are, at the time of the whole."""
    problem = turns_problem()
    plan = solved(problem)
    configuration = plan.joint[0].configuration
    for member in problem.tasks:
        own = own_configuration(member, configuration)
        choices = [c.role for phase in own.phases for pool in phase.pools for c in pool.choices]
        assert choices == ["rollout", "actor"]
        assert own.step_time_s == configuration.step_time_s
        assert own.gpus == sum(pool.gpus for pool in own.phases[0].pools) == 2


def test_roles_and_workers_go_to_the_member_they_are_of() -> None:
    """A name is `task/role`."""
    problem = turns_problem()
    math, code = problem.tasks
    placed = _placed_jointly(problem)
    assert [role.role for role in own_roles(code, placed[::-1])] == ["rollout", "actor"]
    assert own_roles(code, placed)[0].choice.role == "rollout"
    assert own_roles(code, placed)[1].replicas == placed[3].replicas
    shares = [CpuShare("math/env", "n0", 3), CpuShare("code/env", "n0", 1)]
    assert own_shares(math, shares) == (CpuShare("env", "n0", 3),)


def test_all_start_anew_when_one_is_placed_otherwise() -> None:
    """And nobody does when all are as they were; a member that was not running is not moved."""
    problem = _running()
    joint = _joint(problem)
    placed = _placed_jointly(problem)
    assert starts_anew(problem, joint, placed) == frozenset()
    swapped = [replace(placed[0], replicas=placed[1].replicas), *placed[1:]]
    assert starts_anew(problem, joint, swapped) == {"math", "code"}
    first_only = replace(problem, running=problem.running[:1])
    assert starts_anew(first_only, joint, placed) == {"math"}
