"""What a GPU's data sheet allows at best."""

import msgspec
import numpy as np
import pytest
from affine_profile import SHAPE, profile_file

from libra_plan.models.costs.base import places_of
from libra_plan.models.curves.layouts import rows_by_layout, time_samples
from libra_plan.models.memory.states import tables_of
from libra_plan.models.parallelism import Layout
from libra_plan.models.priors.roofline import multiplying_params, passes_of, roofline_s
from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.model_shapes import model_shape


def test_no_measured_step_is_below_the_floor():
    """A floor that a real measurement beats would be wrong, and would raise good guesses."""
    seen = 0
    for profile in load_folder(shipped_folder(), library=()).profiles.values():
        for rows in rows_by_layout(profile.file, profile.points, ()):
            samples = time_samples(rows.base)
            least = roofline_s(profile.file, places_of([each.place for each in samples]), rows.layout)
            assert least is not None
            assert (least < [each.value for each in samples]).all()
            seen += len(least)
    assert seen > 400


@pytest.mark.parametrize(("model", "tables"), [("qwen2.5-0.5b", 1), ("qwen2.5-7b", 2), ("llama-3.1-8b", 2)])
def test_an_input_table_of_its_own_is_looked_up_not_multiplied(model, tables):
    """7B of Qwen2.5 has 0.5 billion parameters that cost nothing; the small ones share their table."""
    shape = model_shape(model)
    assert tables_of(shape) == tables
    assert multiplying_params(shape) == shape.params - (tables - 1) * shape.vocab * shape.hidden


def test_a_step_reads_its_weights_or_does_its_operations():
    """One sequence is bound by bandwidth, a thousand by operations; both by hand."""
    file = profile_file("decode")
    params = multiplying_params(SHAPE)
    few, many = roofline_s(file, places_of([(1, 1e-9, 1), (4096, 1e-9, 1)]))
    assert few == pytest.approx(2 * params / 4.8e12)
    assert many == pytest.approx(2 * params * 4096 / 989.4e12)
    split = roofline_s(file, places_of([(1, 1e-9, 1)]), Layout(tp=2))
    assert split[0] == pytest.approx(few / 2)


def test_training_costs_three_passes_and_recomputation_a_fourth():
    """The floor of a training step must not forget the backward pass."""
    at = places_of([(4, 2048, 1)])
    score, train = profile_file("score"), profile_file("train")
    recomputed = msgspec.structs.replace(
        train, software=msgspec.structs.replace(train.software, recompute="full")
    )
    kept = msgspec.structs.replace(train, software=msgspec.structs.replace(train.software, recompute="none"))
    assert (passes_of(score), passes_of(kept), passes_of(recomputed)) == (1, 3, 4)
    once = roofline_s(score, at)
    assert np.allclose(roofline_s(kept, at), 3 * once)
    assert np.allclose(roofline_s(recomputed, at), 4 * once)


def test_an_unknown_card_has_no_floor():
    """Unknown is None: a floor of 0 would look like knowledge."""
    assert roofline_s(profile_file("decode", gpu_class="other_card"), places_of([(1, 1, 1)])) is None
