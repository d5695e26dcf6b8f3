"""Sleeping roles: seconds and host memory."""

import msgspec
import pytest
from affine_profile import profile_file
from pricing_cases import REFERENCE, ROLLOUT, price_of, role_of, task_of

from libra_plan.errors import RefusedError
from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.memory.states import optimizer_mib, state_mib, weights_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.pricing.passes import StageCost
from libra_plan.models.pricing.switching import (
    measured_offload,
    offloaded_cost,
    offloaded_state,
    sleep_cost,
    sync_s,
    weight_gib,
)
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.catalog import load_profile, load_switching, shipped_folder
from libra_plan.profiles.schema import (
    LifecycleSpec,
    MeasuredSpread,
)


def test_sleep_moves_the_static_state_over_the_host_link():
    """14.19 GiB of weights take 0.28 s each way at the measured 51.3 GiB/s."""
    cost = sleep_cost(14.19 * 1024, 770.0, 51.3, 51.3)
    assert cost.sleep_s == pytest.approx(14.19 / 51.3)
    assert cost.wake_s == pytest.approx(cost.sleep_s)


def test_host_memory_of_a_sleeping_role_is_its_state():
    """Level-1 sleep copies the whole state to the host: it is a resource to plan with (A026)."""
    assert sleep_cost(78 * 1024, 770.0, 51.3, 51.3).host_mib == 78 * 1024


ONE = Layout()
TRAIN = load_profile(shipped_folder() / "h200-qwen2.5-1.5b-train").file
SCORE = load_profile(shipped_folder() / "h200-qwen2.5-7b-score").file
LINK = MeasuredSpread(typical=51.2, low=51.0, high=51.5, p90=51.5, n=4)
COST = StageCost(
    Estimate(10.0, 9.0, 11.0, "s", Origin.INTERPOLATED),
    Estimate(40_000.0, 39_000.0, 43_000.0, "MiB", Origin.INTERPOLATED),
    micro_batches=4,
)


def test_an_offloaded_optimizer_is_twelve_bytes_a_parameter_both_ways():
    """Masters and two moments of 1.5B take 17.3 GiB; two layers of 28 stay as buffers."""
    state = offloaded_state(TRAIN, ONE, 1, {"optimizer"})
    whole = 12 * TRAIN.model.params / 2**20
    assert state.host_mib == pytest.approx(whole)
    assert state.gpu_mib == pytest.approx(whole * 26 / 28)
    assert (state.per_step_mib, state.per_micro_batch_mib) == (pytest.approx(2 * whole), 0.0)


def test_trained_parameters_come_twice_a_micro_batch_and_return_once_a_step():
    """Forward and backward each need the weights; only an update changes them."""
    state = offloaded_state(TRAIN, ONE, 1, {"parameters"})
    weights = weights_mib(TRAIN.model, TRAIN.software, ONE)
    assert state.per_micro_batch_mib == pytest.approx(2 * weights)
    assert state.per_step_mib == pytest.approx(weights)


def test_a_frozen_model_offloads_its_parameters_only():
    """A reference has no optimizer, and nothing of it goes back."""
    state = offloaded_state(SCORE, ONE, 1, {"optimizer", "parameters"})
    assert state.host_mib == pytest.approx(weights_mib(SCORE.model, SCORE.software, ONE))
    assert state.per_step_mib == 0.0


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_what_is_sharded_is_offloaded_in_shards(stage):
    """ZeRO-1 splits the optimizer over ranks; each rank's host copy is its own shard."""
    sharded = msgspec.structs.replace(
        TRAIN, software=msgspec.structs.replace(TRAIN.software, zero_stage=stage)
    )
    state = offloaded_state(sharded, ONE, 4, {"optimizer"})
    everything = offloaded_state(TRAIN, ONE, 1, {"optimizer"}).host_mib
    assert state.host_mib == pytest.approx(everything / (4 if stage else 1))
    assert optimizer_mib(sharded.model, sharded.software, ONE, 4) <= state_mib(
        sharded.model, sharded.software, ONE, 4
    )


def test_the_step_waits_for_the_link_and_the_gpu_is_relieved():
    """A price without the transfer would make offload look free."""
    state = offloaded_state(TRAIN, ONE, 1, {"optimizer", "parameters"})
    found = offloaded_cost(COST, state, LINK, "p")
    gib = (state.per_step_mib + 4 * state.per_micro_batch_mib) / 1024
    assert found.time_s.value == pytest.approx(10 + gib / 51.2)
    assert found.time_s.high == pytest.approx(11 + gib / 51.0)
    assert found.time_s.low == 9.0  # all of it hidden
    assert found.memory_mib.high == pytest.approx(43_000 - state.gpu_mib)
    assert {found.time_s.origin, found.memory_mib.origin} == {Origin.ASSUMED}


def test_an_unmeasured_link_is_refused():
    """Pageable memory is forty times slower, so no rate is no price."""
    with pytest.raises(RefusedError, match="pinned host memory"):
        offloaded_cost(COST, offloaded_state(TRAIN, ONE, 1, {"optimizer"}), None, "p")


def test_a_profile_says_what_was_offloaded_when_it_was_measured():
    """Such a profile holds the truth, and nothing may be added to it."""
    file = profile_file("train")
    assert measured_offload(file) == frozenset()
    flagged = msgspec.structs.replace(
        file, software=msgspec.structs.replace(file.software, flags={"offload": "optimizer+parameters"})
    )
    assert measured_offload(flagged) == {"optimizer", "parameters"}


def test_weights_are_handed_over_only_when_something_trains():
    """An evaluation has no training, so nothing is synchronised."""
    (training,) = price_of(task_of()).tasks
    (evaluation,) = price_of(task_of(ROLLOUT, REFERENCE)).tasks
    assert training.sync_s == pytest.approx(7_615_616_512 * 2 / 2**30 / 365.0)
    assert evaluation.sync_s == 0.0


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_the_slowest_of_several_rollouts_sets_the_hand_over(slow):
    """Training goes on when every rollout has the new weights, in whatever order they are listed."""
    large = load_profile(shipped_folder() / "h200-qwen2.5-7b-decode")
    small = load_profile(shipped_folder() / "h200-qwen2.5-1.5b-decode")
    rollouts = [small, small, small]
    rollouts[slow] = large
    one_node = uniform_cluster(8, "h200_sxm", 143_155.9)
    by_file = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    (path,) = shipped_folder().glob("h200-switching/switching.yaml")
    for cluster, switching in ((one_node, None), (by_file, load_switching(path)[0])):
        alone = sync_s(cluster, [large], switching)
        assert alone > sync_s(cluster, [small], switching) > 0.0
        assert sync_s(cluster, rollouts, switching) == alone


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
