"""The manifest says what the plan says, in rank order, and takes kept tasks over as they run."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import plans
import pytest

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.check import check_manifest
from libra_plan.planner.launchers.document import placements_of
from libra_plan.profiles.schema import LifecycleSpec


def roles(manifest, task=0):
    return {role.id: role for role in manifest.spec.tasks[task].roles}


def gpu_sets(manifest):
    return {
        f"{task.id}/{role.id}": {gpu for replica in role.replicas for gpu in replica}
        for task in manifest.spec.tasks
        for role in task.roles
    }


@pytest.mark.parametrize("case", plans.CASES)
def test_hand_made_cases_are_sound(case):
    """What the builder writes must pass checks that share no code with it."""
    assert check_manifest(plans.CASES[case]()) == []


def test_two_builds_are_equal():
    """A manifest holds no time and nothing random, so the same plan has the same digest."""
    assert plans.two_nodes() == plans.two_nodes()


def test_roles_hold_disjoint_gpus_that_cover_the_node():
    """A001: two roles once held the same GPUs while others stood idle; ids are explicit here."""
    sets = gpu_sets(plans.single_node())
    assert not sets["grpo/actor"] & sets["grpo/rollout"]
    assert sets["grpo/actor"] | sets["grpo/rollout"] == {f"n0:{index}" for index in range(8)}


def test_nodes_of_unequal_size_are_all_used():
    """A004: nodes with 8 and 4 GPUs could not be written as nodes × GPUs per node."""
    replicas = [[one] for one in (*plans.span("n0", 0, 8), *plans.span("n1", 0, 4))]
    manifest = plans.manifest_of(plans.cluster(8, 4), plans.running("t", [plans.role("train", replicas)]))
    assert [(member.node, len(member.gpus)) for member in roles(manifest)["train"].members] == [
        ("n0", 8),
        ("n1", 4),
    ]
    assert check_manifest(manifest) == []


def test_engines_stand_on_both_nodes_of_four():
    """A006: a hidden default of 8 GPUs a node put every engine on the head node."""
    engines = [plans.span(node, first, 2) for node in ("n0", "n1") for first in (0, 2)]
    manifest = plans.manifest_of(
        plans.cluster(4, 4), plans.running("t", [plans.role("rollout", engines, tp=2)])
    )
    assert [member.node for member in roles(manifest)["rollout"].members] == ["n0", "n1"]


def test_commands_and_lifecycle_come_from_the_workload():
    """Launchers need to know what to run and how to stop it."""
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    lifecycle = LifecycleSpec(
        stop_signal="SIGUSR1",
        grace_s=30.0,
        checkpoint_dir="/ckpt",
        checkpoint_sentinel="latest.txt",
        reshardable=True,
    )
    manifest = plans.manifest_of(plans.cluster(1), task, command=("a.py", "--x"), lifecycle=lifecycle)
    assert roles(manifest)["train"].command == ("a.py", "--x")
    assert msgspec.structs.astuple(manifest.spec.tasks[0].lifecycle) == (
        "SIGUSR1",
        30.0,
        "/ckpt",
        "latest.txt",
        True,
    )
    plain = plans.manifest_of(plans.cluster(1), task, lifecycle=LifecycleSpec())
    assert set(msgspec.to_builtins(plain.spec.tasks[0].lifecycle)) == {
        "stopSignal",
        "graceS",
        "checkpointDir",
    }


def test_an_unchanged_task_keeps_generation_ports_and_rendezvous():
    """Its processes run on, so a new port or id would describe something that does not exist."""
    where = plans.cluster(4)
    stays = plans.running("stays", [plans.role("train", [["n0:0"]])])
    first = plans.manifest_of(where, stays, plans.running("moves", [plans.role("train", [["n0:1"]])]))
    second = plans.manifest_of(
        where, stays, plans.running("moves", [plans.role("train", [["n0:2"]])]), parent=first
    )
    assert second.spec.tasks[0] == first.spec.tasks[0]
    assert second.spec.tasks[1].generation == 2
    assert second.spec.tasks[1].roles[0].rendezvous.id == "moves-train-g2"
    assert {step.id for step in second.spec.transitions} == {"keep:stays", "move:moves"}
    assert check_manifest(second, first) == []


@pytest.mark.parametrize("name", ["../up", "a/b", "-r", "a b", "a\n", "", "ä", "x" * 64, "$(id)"])
def test_names_that_could_leave_their_place_are_refused(name):
    """Task and role names become folders, ids and flags."""
    with pytest.raises(ManifestError, match="cannot be written as a manifest"):
        plans.manifest_of(plans.cluster(1), plans.running(name, [plans.role("train", [["n0:0"]])]))


def test_a_parent_of_another_cluster_is_refused():
    """A generation must not continue the manifest of some other cluster."""
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    first = plans.manifest_of(plans.cluster(1), task)
    with pytest.raises(ManifestError, match="another cluster"):
        build_manifest(
            plans.problem_of(plans.cluster(1), [task]), plans.plan_of([task]), name="x", parent=first
        )


def test_placements_give_back_what_the_plan_said():
    """The next solve starts from the manifest, so nothing may be lost on the way."""
    held = {task.task: {role.role: role for role in task.roles} for task in placements_of(plans.two_nodes())}
    actor = held["large"]["actor"]
    assert (actor.layout.tp, actor.layout.pp) == (4, 2)
    assert actor.replicas == (
        tuple(plans.gpu(text) for text in (*plans.span("n0", 0, 4), *plans.span("n1", 0, 4))),
    )
    assert {role.share_group for task in placements_of(plans.colocated()) for role in task.roles} == {
        "share0"
    }


def test_dual_prices_of_the_plan_are_in_the_manifest():
    """The verifier reads them there."""
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    problem, plan = plans.problem_of(plans.cluster(1), [task]), plans.plan_of([task])
    proven = replace(plan, certificate=replace(plan.certificate, duals=(("gpus", 0.5),)))
    manifest = build_manifest(problem, proven, name="lab")
    assert manifest.spec.certificate.duals == {"gpus": 0.5}
