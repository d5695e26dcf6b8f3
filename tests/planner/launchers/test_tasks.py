"""A running task is written down with its ranks, ports and what it is started with."""

from __future__ import annotations

import itertools

import plans
import pytest

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.check import check_manifest
from libra_plan.planner.plan import CpuShare, MemoryMode
from libra_plan.profiles.schema import LifecycleSpec


def roles(manifest, task=0):
    return {role.id: role for role in manifest.spec.tasks[task].roles}


def fields(value):
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def card(gpu):
    return type(gpu)(**{**fields(gpu), "uuid": "GPU-another"})


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
