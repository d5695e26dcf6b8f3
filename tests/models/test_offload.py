"""State in pinned host memory: the bytes that leave, the bytes that cross the link, and the wait."""

import msgspec
import pytest
from affine_profile import profile_file

from libra_plan.errors import RefusedError
from libra_plan.models.memory.states import optimizer_mib, state_mib, weights_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.pricing.passes import StageCost
from libra_plan.models.pricing.switching import measured_offload, offloaded_cost, offloaded_state
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.schema import MeasuredSpread

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
