"""The manifest says what the plan says, in rank order, and takes kept tasks over as they run."""

from __future__ import annotations

import itertools

import msgspec
import plans
import pytest

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.check import check_manifest
from libra_plan.planner.launchers.document import placements_of
from libra_plan.planner.plan import CpuShare, MemoryMode
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


def test_ranks_are_ordered_by_node_and_gpu_whatever_the_plan_lists():
    """A009: ranks in the order of a placement group jumped between nodes."""
    jumbled = [["n1:2", "n1:0"], ["n0:3", "n0:1"], ["n1:3", "n1:1"]]
    manifest = plans.manifest_of(
        plans.cluster(4, 4), plans.running("t", [plans.role("rollout", jumbled, tp=2)])
    )
    assert roles(manifest)["rollout"].replicas == (("n0:1", "n0:3"), ("n1:0", "n1:2"), ("n1:1", "n1:3"))
    assert [member.gpus for member in roles(manifest)["rollout"].members] == [(1, 3), (0, 2, 1, 3)]
    assert check_manifest(manifest) == []


def test_shared_gpus_have_one_group_across_phases():
    """Roles that meet on a GPU only in another phase still share it, and a launcher must know."""
    task = plans.running(
        "t",
        [plans.role("actor", [["n0:0"], ["n0:1"]])],
        [plans.role("reference", [["n0:2"]])],
        [plans.role("rollout", [["n0:1"]])],
        phases=[0, 0, 1],
    )
    found = roles(plans.manifest_of(plans.cluster(4), task))
    assert found["actor"].share_group == found["rollout"].share_group == "share0"
    assert found["reference"].share_group is None
    assert (found["rollout"].phase, found["rollout"].pool) == (1, 0)
    assert (found["reference"].phase, found["reference"].pool) == (0, 1)


def test_predictions_keep_bounds_unit_and_origin():
    """A number without its error is no prediction; what is not known stays null."""
    role = roles(plans.single_node())["actor"]
    time = role.stage_time
    assert (time.value, time.low, time.high, time.unit, time.origin) == (20.0, 18.0, 22.5, "s", "measured")
    assert (role.peak_memory.low, role.peak_memory.high, role.peak_memory.unit) == (None, 90_000.0, "MiB")
    assert plans.single_node().spec.tasks[0].step_time.origin == "interpolated"


def test_sleeping_state_counts_as_host_memory():
    """A026: state put to sleep takes host memory, which launchers must ask for."""
    pool = [plans.role("actor", [["n0:0"]]), plans.role("rollout", [["n0:0"]])]
    awake = plans.manifest_of(plans.cluster(1), plans.running("t", pool))
    asleep = plans.manifest_of(plans.cluster(1), plans.running("t", pool, memory_mode=MemoryMode.SLEEP))
    assert roles(awake)["actor"].host_memory_mib_per_gpu == 0.0
    assert roles(asleep)["actor"].host_memory_mib_per_gpu == 30_000.0


def test_cpu_roles_say_workers_and_cores_per_node():
    """An environment holds no GPUs, but the cores it takes are taken from somebody."""
    task = plans.running(
        "t", [plans.role("rollout", [["n0:0"]])], cpu=[CpuShare("env", "n0", 4), CpuShare("env", "n1", 12)]
    )
    shares = roles(plans.manifest_of(plans.cluster(1, 1), task))["env"].cpu
    assert [(share.node, share.workers, share.cpu_cores) for share in shares] == [
        ("n0", 4, 4.0),
        ("n1", 12, 12.0),
    ]


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


def test_a_better_prediction_is_no_reason_to_restart():
    """Numbers change at every look; processes must not."""
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    first = plans.manifest_of(plans.cluster(1), task)
    other = plans.running("t", [plans.role("train", [["n0:0"]], peak_mib=80_000.0)])
    second = plans.manifest_of(plans.cluster(1), other, parent=first)
    assert [step.action for step in second.spec.transitions] == ["keep"]


@pytest.mark.parametrize("change", ["command", "lifecycle", "card"])
def test_what_processes_were_started_with_is_a_reason_to_restart(change):
    """Command, grace and card are fixed at start; keeping the processes would be a lie (A012)."""
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    where = plans.cluster(1)
    first = plans.manifest_of(where, task)
    changes = {"command": {"command": ("other.py",)}, "lifecycle": {"lifecycle": LifecycleSpec(grace_s=1.0)}}
    if change == "card":
        node = where.nodes[0]
        where = type(where)("lab", (type(node)(**{**fields(node), "gpus": (card(node.gpus[0]),)}),))
    second = plans.manifest_of(where, task, parent=first, **changes.get(change, {}))
    assert [step.action for step in second.spec.transitions] == ["move"]


def fields(value):
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def card(gpu):
    return type(gpu)(**{**fields(gpu), "uuid": "GPU-another"})


def test_ports_never_meet_those_of_the_parent():
    """A013: two jobs on one host met on port 29500; the old one may still be stopping."""
    where = plans.cluster(4)
    manifests = [None]
    for index in range(6):
        task = plans.running(
            "t", [plans.role("train", [[f"n0:{index % 2}"]])], [plans.role("eval", [["n0:3"]])]
        )
        manifests.append(plans.manifest_of(where, task, parent=manifests[-1]))
    ports = [
        {member.port for role in one.spec.tasks[0].roles for member in role.members} for one in manifests[1:]
    ]
    assert all(len(used) == 2 for used in ports)
    assert all(not old & new for old, new in itertools.pairwise(ports))


def test_an_exhausted_port_range_names_range_node_and_way_out():
    """A069: what, got, allowed and way out, in one form."""
    task = plans.running("t", [plans.role("a", [["n0:0"]])], [plans.role("b", [["n0:1"]])])
    with pytest.raises(ManifestError) as caught:
        plans.manifest_of(plans.cluster(2, ports=(24000, 24000)), task)
    error = caught.value
    assert "n0" in error.what
    assert "t/b" in error.what
    assert "1 ports taken" in error.got
    assert error.allowed == "24000-24000"
    assert "port_first" in error.way_out


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
