"""Gradients that stand while a pass peaks are part of the peak."""

import msgspec
import pytest
from affine_profile import profile_file

from libra_plan.models.memory.held_gradients import with_held_gradients
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin

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
