"""Every rule of the checks fires on a manifest that breaks just that rule."""

from __future__ import annotations

import msgspec
import plans
import pytest

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers import manifest as m
from libra_plan.planner.launchers.check import check_manifest, require_sound_manifest
from libra_plan.planner.launchers.document import seal

replace = msgspec.structs.replace


def with_spec(manifest, **changes):
    return seal(replace(manifest, spec=replace(manifest.spec, **changes)))


def with_role(manifest, task, role, **changes):
    """Change one role of one task, by position."""
    entry = manifest.spec.tasks[task]
    roles = list(entry.roles)
    roles[role] = replace(roles[role], **changes)
    tasks = list(manifest.spec.tasks)
    tasks[task] = replace(entry, roles=tuple(roles))
    return with_spec(manifest, tasks=tuple(tasks))


def with_nodes(manifest, **changes):
    return with_spec(manifest, nodes=tuple(replace(node, **changes) for node in manifest.spec.nodes))


def member(node, *gpus, port=24000):
    return m.Member(node=node, gpus=gpus, port=port)


def degrees(**changes):
    return m.DegreesEntry(**{"tp": 2, "pp": 1, "cp": 1, "ep": 1, "dp": 1, **changes})


SINGLE, TWO, SHARED = plans.single_node(), plans.two_nodes(), plans.colocated()
ACTOR, ROLLOUT = SINGLE.spec.tasks[0].roles[:2]
INPUTS, (STEP,) = SINGLE.spec.inputs, SINGLE.spec.transitions
NOWHERE = m.CpuShareEntry(node="n7", workers=1, cpu_cores=1.0, host_memory_mib=0.0)
STRANGER = m.Transition(id="start:x", task="x", action="start", gpus_before=0, gpus_after=1, after=())
SPREAD = (tuple(plans.span("n0", 0, 4) + plans.span("n2", 0, 4)),)

BROKEN = {
    "digest-wrong": replace(SINGLE, metadata=replace(SINGLE.metadata, digest="sha256:" + 64 * "0")),
    "not-canonical": replace(
        SINGLE, spec=replace(SINGLE.spec, inputs=replace(INPUTS, horizon_s=float("nan")))
    ),
    "name-twice": with_spec(SINGLE, queued=SINGLE.spec.queued * 2),
    "role-unplaced": with_role(SINGLE, 0, 2, cpu=()),
    "layout-missing": with_role(SINGLE, 0, 0, layout=None),
    "world-size": with_role(SINGLE, 0, 0, layout=degrees(dp=2)),
    "rank-order": with_role(SINGLE, 0, 0, members=(member("n0", 1, 0),)),
    "gpu-twice": with_role(SINGLE, 0, 0, members=(member("n0", 0, 0),), replicas=(("n0:0", "n0:0"),)),
    "gpu-unknown": with_role(SINGLE, 0, 0, members=(member("n0", 0, 9),), replicas=(("n0:0", "n0:9"),)),
    "replica-straddles": with_role(
        TWO, 0, 0, replicas=SPREAD, members=(member("n0", 0, 1, 2, 3), member("n2", 0, 1, 2, 3, port=24009))
    ),
    "rendezvous-node": with_role(TWO, 0, 0, rendezvous=m.Rendezvous(node="n1", port=24000, id="x")),
    "rendezvous-port": with_role(SINGLE, 0, 0, rendezvous=m.Rendezvous(node="n0", port=24005, id="x")),
    "memory-short": with_role(SINGLE, 0, 0, peak_memory=replace(ACTOR.peak_memory, high=150_000.0)),
    "gpu-two-tasks": with_role(
        TWO, 1, 0, replicas=(("n0:0",), ("n0:1",)), members=(member("n0", 0, 1, port=24009),)
    ),
    "gpu-two-groups": with_role(SHARED, 0, 1, share_group=None),
    "port-range": with_role(SINGLE, 0, 0, members=(member("n0", 0, 1, port=80),)),
    "port-twice": with_role(SINGLE, 0, 0, members=(member("n0", 0, 1, port=ROLLOUT.members[0].port),)),
    "cpu-short": with_nodes(SINGLE, cpu_cores=8.0),
    "host-memory-short": with_nodes(SHARED, host_memory_mib=1000.0),
    "node-unknown": with_role(SINGLE, 0, 2, cpu=(NOWHERE,)),
    "step-missing": with_spec(SINGLE, transitions=()),
    "step-task": with_spec(SINGLE, transitions=(STEP, STRANGER)),
    "step-order": with_spec(SINGLE, transitions=(replace(STEP, after=("stop:nobody",)),)),
    "step-count": with_spec(SINGLE, transitions=(replace(STEP, gpus_after=7),)),
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_rule_is_named(code):
    """Each check must be able to fail, or it protects nothing."""
    assert code in {violation.code for violation in check_manifest(BROKEN[code])}


def test_a_sum_over_the_inventory_is_refused():
    """A015: a plan once asked for 128 GPUs of 32; what is emitted is added up again."""
    fewer = tuple(replace(node, gpus=node.gpus[:4]) for node in SINGLE.spec.nodes)
    violations = check_manifest(with_spec(SINGLE, nodes=fewer))
    assert [violation.message for violation in violations if violation.code == "gpu-unknown"] == [
        "not in the inventory: n0:4, n0:5, n0:6, n0:7"
    ]


def test_a_role_that_needs_a_gpu_has_one():
    """A018: a reward model once ran in a task that saw no GPU."""
    lost = with_role(SINGLE, 0, 0, replicas=(), members=(), layout=None, rendezvous=None)
    assert "grpo/actor" in {one.where for one in check_manifest(lost) if one.code == "role-unplaced"}


def test_a_tensor_parallel_group_does_not_cross_nodes():
    """A010: a TP 2 engine over two nodes ran at a quarter of its speed."""
    split = with_role(
        TWO,
        1,
        1,
        replicas=(("n0:3", "n1:0"),),
        layout=degrees(),
        members=(member("n0", 3, port=24010), member("n1", 0, port=24010)),
    )
    assert "replica-straddles" in {one.code for one in check_manifest(split)}


def test_unknown_cores_are_not_enough_cores():
    """Unknown is not zero and not plenty."""
    (violation,) = check_manifest(with_nodes(SINGLE, cpu_cores=None))
    assert violation.message == "48 CPU cores asked, an unknown number there"


def second(first):
    """Let rollout give two GPUs to the actor of another task."""
    where = plans.cluster(8)
    return plans.manifest_of(
        where,
        plans.running("a", [plans.role("train", [[one] for one in plans.span("n0", 0, 2)])]),
        plans.running("b", [plans.role("train", [[one] for one in plans.span("n0", 2, 6)])]),
        parent=first,
    )


def first():
    where = plans.cluster(8)
    return plans.manifest_of(
        where,
        plans.running("a", [plans.role("train", [[one] for one in plans.span("n0", 0, 4)])]),
        plans.running("b", [plans.role("train", [[one] for one in plans.span("n0", 4, 4)])]),
    )


def test_growing_before_the_other_shrank_is_caught():
    """A031: with the steps turned round, two tasks would hold the same GPUs for a while."""
    old = first()
    new = second(old)
    assert check_manifest(new, old) == []
    turned = with_spec(new, transitions=tuple(replace(one, after=()) for one in new.spec.transitions[::-1]))
    assert {one.code for one in check_manifest(turned, old)} == {"step-clash", "step-order"}


def test_keeping_what_changed_is_caught():
    """A step that says `keep` would leave the old processes on the wrong GPUs."""
    old = first()
    new = second(old)
    kept = with_spec(new, transitions=tuple(replace(one, action="keep") for one in new.spec.transitions))
    assert "step-keep" in {one.code for one in check_manifest(kept, old)}


def test_the_parent_must_be_the_parent():
    """A hand-over from some other manifest says nothing about who holds what now."""
    old = first()
    codes = {one.code for one in check_manifest(second(old), second(old))}
    assert {"parent-other", "generation-order"} <= codes


def test_an_unsound_manifest_is_raised_with_all_its_faults():
    """The message must be enough to find the fault without reading the file."""
    with pytest.raises(ManifestError, match=r"port-range: grpo/actor: port 80 is outside 24000-24999"):
        require_sound_manifest(BROKEN["port-range"])
