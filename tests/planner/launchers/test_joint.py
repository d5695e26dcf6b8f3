"""Joint runs in manifests: the golden files, the checks, the steps between plans, and who can start them."""

from __future__ import annotations

from dataclasses import replace

import golden
import msgspec
import pytest
from joint_cases import CASES, held, manifest_of, solved, task, turns_problem

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.launchers.base import emitters, missing_abilities
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.check import check_manifest
from libra_plan.planner.launchers.document import placements_of, seal
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.profiles.schema import LogNormal, RoleSpec, TaskSpec, WorkloadFile, WorkSpec


@pytest.mark.parametrize("case", CASES)
def test_golden_manifest(case):
    """What launchers read of joint runs is a contract: a change of it must be seen."""
    kept = (golden.FOLDER / "joint" / f"{case}.json").read_text("utf-8")
    assert golden.joint_manifest(case) == kept


@pytest.mark.parametrize("case", CASES)
def test_joint_manifest_is_sound(case):
    """Checks that share no code with the builder find nothing, though GPUs have two tasks."""
    assert check_manifest(manifest_of(CASES[case]())) == []


def test_turns_cross_the_two_pools():
    """While one task is in the first pool the other is in the second, then the other way round."""
    manifest = manifest_of(turns_problem())
    (entry,) = manifest.spec.joint
    assert entry.turns == (("math/rollout", "code/actor"), ("code/rollout", "math/actor"))
    groups = {f"{task.id}/{role.id}": role.share_group for task in manifest.spec.tasks for role in task.roles}
    assert groups["math/rollout"] == groups["code/rollout"] == "turns0"
    assert groups["math/actor"] == groups["code/actor"] == "turns1"
    assert groups["math/env"] is None


def tampered(manifest, **changes):
    entry = msgspec.structs.replace(manifest.spec.joint[0], **changes)
    spec = msgspec.structs.replace(manifest.spec, joint=(entry,))
    return seal(msgspec.structs.replace(manifest, spec=spec))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tasks": ("math", "prose")}, "joint-task"),
        ({"turns": (("math/rollout",), ("math/actor",))}, "joint-turns"),
        ({"tasks": ("math",)}, "gpu-two-tasks"),
    ],
)
def test_wrong_joint_entries_are_found(changes, code):
    """A manifest that leaves a task or a turn out would let two tasks work on one GPU at once."""
    manifest = tampered(manifest_of(turns_problem()), **changes)
    assert code in {each.code for each in check_manifest(manifest)}


def test_manifest_without_sharing_says_nothing_of_it():
    """Files of plans that share nothing stay as they were, byte for byte."""
    manifest = manifest_of(replace(turns_problem(), sharing=()))
    assert b'"joint"' not in msgspec.json.encode(manifest)


# ---------------------------------------------------------------- from plan to plan


def steps(manifest: Manifest):
    return [(step.task, step.action) for step in manifest.spec.transitions]


@pytest.mark.parametrize("case", CASES)
def test_unchanged_joint_run_is_kept(case):
    """Processes run on when the plan is the same."""
    problem = CASES[case]()
    first = manifest_of(problem)
    again = manifest_of(replace(problem, running=placements_of(first)), first)
    assert {action for _, action in steps(again)} == {"keep"}
    assert check_manifest(again, first) == []


def test_a_task_that_begins_to_share_is_stopped_first():
    """Nobody starts beside a task that does not know yet that it shares."""
    problem = turns_problem()
    first = manifest_of(replace(problem, sharing=()))
    (alone,) = first.spec.tasks
    then = manifest_of(replace(problem, running=placements_of(first)), first)
    assert steps(then)[0] == (alone.id, "stop")
    assert set(steps(then)[1:]) == {("math", "start"), ("code", "start")}
    assert check_manifest(then, first) == []


def test_all_stop_before_one_of_them_goes_on_alone():
    """The GPUs of a joint run are free when the last of its tasks has left them."""
    problem = turns_problem()
    first = manifest_of(problem)
    apart = replace(problem, running=held(solved(problem)), sharing=())
    then = manifest_of(apart, first)
    assert {action for _, action in steps(then)[:2]} == {"stop"}
    start = then.spec.transitions[-1]
    assert (start.action, set(start.after)) == ("start", {"stop:math", "stop:code"})
    assert check_manifest(then, first) == []


def test_one_member_that_moves_takes_the_other_along():
    """Where one task's part is the same and the other's is not, both are started anew."""
    problem = turns_problem()
    first = manifest_of(problem)
    faster = replace(problem, tasks=(problem.tasks[0], task("code", 3.0, 7.0, env=True)))
    then = manifest_of(replace(faster, running=placements_of(first)), first)
    assert [action for _, action in steps(then)] == ["stop", "stop", "start", "start"]
    assert check_manifest(then, first) == []


# ---------------------------------------------------------------- launchers


def with_commands(problem):
    work = WorkSpec(samples=8, prompt_tokens=LogNormal(median_tokens=9.0, sigma=0.1, max_tokens=20))
    specs = tuple(
        TaskSpec(
            id=each.id,
            work_per_step=work,
            roles=tuple(
                RoleSpec(id=role.id, kind=role.kind, command=("run.py", role.id)) for role in each.roles
            ),
        )
        for each in problem.tasks
    )
    return build_manifest(
        problem, solved(problem), name="small", workload=WorkloadFile(schema_version=1, tasks=specs)
    )


@pytest.mark.parametrize("name", emitters())
def test_launchers_say_that_they_cannot(name):
    """A launcher that would start two tasks on one GPU at once must not be used."""
    emitter = golden.golden_emitters()[name]
    manifest = with_commands(turns_problem())
    if name == "torchrun":
        assert missing_abilities(emitter, manifest) == []
        return
    with pytest.raises(ManifestError, match="two tasks that take GPUs in turn"):
        emitter.emit(manifest)


def test_torchrun_passes_the_order_of_turns_on():
    """The programs hand the GPUs over, so they must know to whom."""
    agents = agents_of(with_commands(turns_problem()))
    said = {agent.environment.get("LIBRA_PLAN_TURNS") for agent in agents if agent.gpus}
    assert said == {"math/rollout,code/actor;code/rollout,math/actor"}
