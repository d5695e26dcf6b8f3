"""States of full and adapter training against sums done by hand."""

import msgspec
import pytest
from affine_profile import SHAPE, profile_file

from libra_plan.models.memory.states import adapter_params, state_mib, weights_mib, with_held_gradients
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin

MIB = 2**20


def test_adapters_are_counted_projection_by_projection():
    """Projections: q and o 3584-3584, k and v 3584-512, gate, up and down 3584-18944, rank 16, 28 layers."""
    sides = 2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944)
    assert adapter_params(SHAPE, 16) == 16 * 28 * sides == 40_370_176


def test_lora_trains_adapters_beside_frozen_weights():
    """2 bytes a frozen parameter; 16 an adapter's, of which ZeRO-2 over 4 ranks leaves 2 + 14/4."""
    plain = profile_file("train", precision="fp32-master/bf16", lora_rank=16)
    sharded = profile_file("train", precision="fp32-master/bf16", lora_rank=16, zero_stage=2)
    frozen, adapter = 2 * SHAPE.params, 40_370_176
    assert state_mib(SHAPE, plain.software, Layout(), 4) == pytest.approx((frozen + 16 * adapter) / MIB)
    assert state_mib(SHAPE, sharded.software, Layout(), 4) == pytest.approx((frozen + 5.5 * adapter) / MIB)


def test_fully_sharded_lora_shards_the_frozen_model_too():
    """FSDP keeps 1/4 of everything on each of 4 ranks."""
    file = profile_file("train", precision="fp32-master/bf16", lora_rank=16, zero_stage=3)
    whole = (2 * SHAPE.params + 16 * 40_370_176) / MIB
    assert state_mib(SHAPE, file.software, Layout(), 4) == pytest.approx(whole / 4)


def test_tensor_and_pipeline_ranks_split_states_evenly():
    """A replica of tp 2 and pp 2 holds a quarter on each GPU; context ranks hold copies."""
    software = profile_file("train").software
    one = state_mib(SHAPE, software, Layout(), 1)
    assert state_mib(SHAPE, software, Layout(tp=2, pp=2), 1) == pytest.approx(one / 4)
    assert state_mib(SHAPE, software, Layout(cp=2), 1) == one
    assert weights_mib(SHAPE, software, Layout(tp=4)) == pytest.approx(2 * SHAPE.params / 4 / MIB)


@pytest.mark.parametrize(
    ("precision", "width"),
    [("fp32", 4.0), ("fp32-master/bf16", 2.0), ("bf16", 2.0), ("fp8", 1.0), ("w8a8", 1.0), ("int4", 0.5)],
)
def test_weights_take_what_their_precision_takes(precision, width):
    """Too few bytes a weight would call a plan feasible that is not."""
    software = profile_file("train", precision=precision).software
    assert weights_mib(SHAPE, software, Layout()) == pytest.approx(width * SHAPE.params / 2.0**20)


MEMORY = Estimate(1000.0, 900.0, 1100.0, "MiB", Origin.MEASURED)
GRADIENTS_MIB = 2 * 7_615_616_512 / 2**20  # bf16


def held(ranks=1, micro_batches=1, **software):
    profile = profile_file("train", **software)
    return with_held_gradients(profile, Layout(), ranks, micro_batches, MEMORY)


def test_one_micro_batch_alone_peaks_as_measured():
    """Its gradients come as its activations go."""
    assert held() == MEMORY


@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 2), (2, 1), (4, 8)])
def test_accumulation_and_ranks_keep_all_gradients(ranks, micro_batches):
    """The second micro-batch finds them there; of a pass alone only the output table's are."""
    peak = held(ranks, micro_batches)
    table = 152064 * 3584 * 2 / 2**20
    assert peak.value == pytest.approx(1000.0 + GRADIENTS_MIB - table)
    assert peak.high == pytest.approx(1100.0 + GRADIENTS_MIB)
    assert peak.origin is Origin.EXTRAPOLATED


def test_sharded_gradients_are_shared_out():
    """ZeRO-2 and up keep a rank's part of them."""
    assert held(4, 1, zero_stage=2).high == pytest.approx(1100.0 + GRADIENTS_MIB / 4)


def test_a_profile_of_accumulated_steps_has_them_in_its_points():
    """Counting them twice would refuse what fits."""
    assert held(2, 8, flags={"micro_batches": 2}) == MEMORY


def test_adapters_have_small_gradients():
    """With LoRA nothing else is trained."""
    assert held(1, 2, lora_rank=16).high < 1100.0 + GRADIENTS_MIB / 50


def test_profiles_say_how_many_micro_batches_they_saw():
    """The flag is the importer's and the measurer's word; anything else counts as one."""
    profile = profile_file("train")
    software = msgspec.structs.replace(profile.software, flags={"micro_batches": "two"})
    odd = msgspec.structs.replace(profile, software=software)
    assert with_held_gradients(odd, Layout(), 1, 2, MEMORY).high > MEMORY.high
