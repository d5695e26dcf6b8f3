"""What it costs to hand weights over, to restart and to sleep."""

import msgspec
import pytest
from affine_profile import profile_file
from pricing_cases import REFERENCE, ROLLOUT, price_of, role_of, task_of

from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.pricing.switching import weight_gib
from libra_plan.profiles.schema import (
    LifecycleSpec,
)


def test_weights_are_handed_over_only_when_something_trains():
    """An evaluation has no training, so nothing is synchronised."""
    (training,) = price_of(task_of()).tasks
    (evaluation,) = price_of(task_of(ROLLOUT, REFERENCE)).tasks
    assert training.sync_s == pytest.approx(7_615_616_512 * 2 / 2**30 / 365.0)
    assert evaluation.sync_s == 0.0


def test_unknown_link_between_nodes_hands_weights_over_by_checkpoint():
    """Unknown is not free: the weights go through the file system at its measured pace."""
    cluster = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    (task,) = price_of(task_of(), cluster=cluster).tasks
    gib = 7_615_616_512 * 2 / 2**30
    assert task.sync_s == pytest.approx(gib / 0.75 + gib / 4.0)


@pytest.mark.parametrize(
    ("precision", "width"), [("fp8_block", 1), ("nvfp4", 0.5), ("fp32-master/bf16", 2), ("bf16", 2)]
)
def test_weights_are_handed_over_in_the_width_they_are_used_in(precision, width):
    """Block-scaled weights priced as bf16 would take twice the time, and more to move than they do."""
    file = profile_file("decode", precision=precision)
    assert weight_gib(file.model, file.software) == pytest.approx(file.model.params * width / 2**30)


def test_restart_without_figures_costs_the_whole_horizon():
    """A task whose move is unpriced is not moved for gain; the user's own figure wins."""
    (unknown,) = price_of(task_of(), switching=False).tasks
    assert unknown.restart_s == 3600.0
    stated = task_of(lifecycle=LifecycleSpec(restart_s=12.0))
    assert price_of(stated, switching=False).tasks[0].restart_s == 12.0


def test_weights_that_cannot_be_handed_over_keep_the_roles_together():
    """No link and no price of a checkpoint: never 0 seconds, but colocated only, and said why."""
    cluster = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    (task,) = price_of(task_of(), cluster=cluster, switching=False).tasks
    assert {each.value for each in task.arrangements} == {"colocated"}
    assert any("inter_node_gib_per_s is unknown" in line for line in task.roles[0].refusals)
    assert task.roles[0].options
    (task,) = price_of(task_of(arrangements=("separate",)), cluster=cluster, switching=False).tasks
    assert task.roles[0].options == ()
    (evaluation,) = price_of(task_of(ROLLOUT, REFERENCE), cluster=cluster, switching=False).tasks
    assert len(evaluation.arrangements) == 3


def test_the_way_through_a_checkpoint_is_noted():
    """A plan that prices the slow way for want of a figure says so."""
    cluster = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    notes = role_of(price_of(task_of(), cluster=cluster)).options[0].notes
    assert any("through a checkpoint" in note for note in notes)
    assert not any("checkpoint" in note for note in role_of(price_of(task_of())).options[0].notes)


def test_a_role_that_cannot_sleep_has_no_price_for_it():
    """can_sleep false, or no host link measured: None, not 0 seconds."""
    role = msgspec.structs.replace(REFERENCE, can_sleep=False)
    option = role_of(price_of(task_of(role)), "reference").options[0]
    assert option.sleep_s is None
    assert option.wake_s is None
    option = role_of(price_of(task_of(REFERENCE), switching=False), "reference").options[0]
    assert option.sleep_s is None
