"""States of full and adapter training against sums done by hand."""

import pytest
from affine_profile import SHAPE, profile_file

from libra_plan.models.memory.states import adapter_params, state_mib, weights_mib
from libra_plan.models.parallelism import Layout

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
