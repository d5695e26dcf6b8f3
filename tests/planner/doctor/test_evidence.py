"""Whose GPUs are, from manifests."""

from __future__ import annotations

from doctor_cases import card, evidence_of, play
from plans import colocated, two_nodes

from libra_plan.planner.doctor.evidence import placement_of


def test_gpus_are_known_by_their_place_and_kinds_by_the_manifest():
    """What monitor calls node0:3 is what the plan calls so."""
    manifest = two_nodes()
    placement = placement_of(manifest)
    for task in manifest.spec.tasks:
        for role in task.roles:
            assert placement.kinds[task.id, role.id] == role.kind
            for gpu in (gpu for replica in role.replicas for gpu in replica):
                held = placement.by_place[gpu]
                assert (task.id, role.id) in [(one.task, one.role) for one in held]


def test_roles_that_take_gpus_in_turn_are_one_group():
    """What such a GPU does is not one role's alone."""
    manifest = colocated()
    (task,) = manifest.spec.tasks
    node = manifest.spec.nodes[0].id
    shared = {gpu for role in task.roles for replica in role.replicas for gpu in replica}
    seen = play(60, lambda at_s: [card(int(gpu.rpartition(":")[2])) for gpu in sorted(shared)], node=node)
    groups = evidence_of(seen, placement=placement_of(manifest)).groups
    most = max(groups, key=lambda group: len(group.roles))
    assert len(most.roles) > 1
    assert most.task == task.id
    assert most.name.startswith(f"{task.id}/")


def test_a_gpu_that_the_manifest_does_not_know_is_its_nodes():
    """Nothing is made up about it."""
    (group,) = evidence_of(play(60, node="elsewhere"), placement=placement_of(two_nodes())).groups
    assert (group.name, group.task, group.roles) == ("elsewhere", None, ())


def test_the_uuid_wins_over_the_place():
    """Indices change when a driver is loaded anew, cards do not."""
    manifest = two_nodes()
    place, holders = next((name, held) for name, held in placement_of(manifest).by_place.items() if held)
    placement = placement_of(manifest)
    placement.by_uuid["GPU-7"] = holders
    (track,) = evidence_of(play(60, lambda at_s: [card(7)], node="other")).gpus
    assert placement.holders(track) == holders
    assert place in placement.by_place
