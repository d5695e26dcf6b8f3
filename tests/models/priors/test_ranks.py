import itertools

import pytest
from affine_profile import SHAPE, profile_file
from fitting import fitted, points_of, shipped

from libra_plan.errors import RefusedError
from libra_plan.models.fit import fit_profile
from libra_plan.models.memory.states import gradient_bytes, state_mib
from libra_plan.models.network import Link, all_reduce_s, ranks_s
from libra_plan.models.parallelism import Layout
from libra_plan.models.priors.ranks import ranks_note
from libra_plan.models.quantities import Origin
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.schema import Hardware

SWEEP = [(1, 2**p) for p in range(9, 16)] + [(b, 16384 // b) for b in (2, 4, 8, 16, 32)]


def train_law(batch, length):
    return 0.03 + 3e-5 * batch * length + 7e-10 * batch * length**2


def train_points(**rest):
    return points_of(train_law, lambda b, s: 70000 + 0.3 * b * s, SWEEP, **rest)


@pytest.mark.parametrize("model", ["0.5b", "1.5b"])
def test_two_gpu_steps_follow_from_one_gpu_points_within_five_percent(model):
    """Adding a replica is the planner's most frequent question, and it was measured."""
    alone = shipped(f"{model}-train")
    together = load_profile(shipped_folder() / f"h200-qwen2.5-{model}-train-ddp")
    steps = [point for point in together.points if point.dp == 2]
    assert steps
    for point in steps:
        answer = alone.time_s(Query(point.batch_sequences, point.seq_len_tokens, dp=2))
        assert answer.value == pytest.approx(point.time_s, rel=0.05)
        assert answer.low <= point.time_s <= answer.high


def test_the_ring_all_reduce_matches_what_was_measured():
    """14 GiB over two H200 took 43 ms, 3 GiB 9.4 ms."""
    assert all_reduce_s(14 * 2**30, 2, Link(366.0)) == pytest.approx(0.043, rel=0.02)
    assert all_reduce_s(3 * 2**30, 2, Link(366.0)) == pytest.approx(0.0094, rel=0.03)
    assert all_reduce_s(1e9, 1, Link(366.0)) == 0


def test_an_unknown_link_is_refused():
    """Nobody's bandwidth may be invented."""
    file = profile_file("train")
    bare = Hardware(gpu_class="h200_sxm", memory_mib=143155.9, gpus_per_node=8, intra_node_gib_per_s=300.0)
    model = fit_profile(type(file)(**{**_fields(file), "hardware": bare}), train_points())
    assert model.time_s(Query(4, 4096, dp=8)).value > model.time_s(Query(4, 4096)).value
    with pytest.raises(RefusedError, match="inter_node_gib_per_s"):
        model.time_s(Query(4, 4096, dp=16))
    assert model.time_s(Query(4, 4096, dp=16, link_gib_per_s=40.0)).value > 0


def _fields(file):
    return {name: getattr(file, name) for name in file.__struct_fields__}


def test_a_measured_rank_count_is_answered_as_measured():
    """A row at two ranks beats the prediction for two ranks."""
    extra = points_of(lambda b, s: 0.777, None, [(4, 4096)], dp=2)
    answer = fitted("train", [*train_points(), *extra]).time_s(Query(4, 4096, dp=2))
    assert (answer.value, answer.origin) == (0.777, Origin.MEASURED)


def test_sharded_states_shrink_with_ranks_and_replicated_ones_need_buckets():
    """ZeRO moves states between ranks; DistributedDataParallel copies gradients instead."""
    whole = fitted("train", train_points(), precision="fp32-master/bf16")
    one, four = whole.memory_mib(Query(4, 4096)), whole.memory_mib(Query(4, 4096, dp=4))
    assert four.value == pytest.approx(one.value + 4 * 7615616512 / 2**20)
    assert four.high >= one.high + 4 * 7.6e9 / 2**20 * 0.99
    sharded = fitted("train", train_points(), precision="fp32-master/bf16", zero_stage=3)
    saved = one.value - sharded.memory_mib(Query(4, 4096, dp=2)).value
    gathered = 2 * (2 * 152064 * 3584 + 2 / 28 * (7615616512 - 2 * 152064 * 3584))
    assert saved == pytest.approx((8 * 7615616512 - gathered) / 2**20, rel=0.01)


def test_state_bytes_follow_the_zero_stage():
    """4 + 12/d, 2 + 14/d and 16/d bytes per parameter."""
    for stage, whole, shared in ((0, 16, 0), (1, 4, 12), (2, 2, 14), (3, 0, 16)):
        file = profile_file("train", precision="fp32-master/bf16", zero_stage=stage)
        expected = (whole + shared / 4) * file.model.params / 2**20
        assert state_mib(file.model, file.software, Layout(), 4) == pytest.approx(expected)


def test_gradients_of_adapters_are_small():
    """LoRA trains a sliver of the parameters, and only that is reduced."""
    file = profile_file("train", lora_rank=16)
    full = profile_file("train")
    assert gradient_bytes(file.model, file.software, Layout()) < 0.02 * gradient_bytes(
        full.model, full.software, Layout()
    )


@pytest.mark.parametrize("model", ["0.5b", "1.5b"])
def test_steps_over_ranks_of_a_second_profile_join_the_fit(model):
    """What was measured on two GPUs answers for two GPUs, and mends the prediction for more."""
    one, two = (
        load_profile(shipped_folder() / f"h200-qwen2.5-{model}-{phase}") for phase in ("train", "train-ddp")
    )
    joined = fit_profile(one.file, one.points, extra=[(two.file, two.points)])
    plain = fit_profile(one.file, one.points)
    for line, point in enumerate(two.points, start=2):
        if point.dp == 2:
            answer = joined.time_s(Query(point.batch_sequences, point.seq_len_tokens, dp=2))
            assert (answer.value, answer.origin) == (point.time_s, Origin.MEASURED)
            assert answer.rows == (f"{two.file.id}/points.csv:{line}",)
    ask = Query(4, 4096, dp=4)
    assert joined.time_s(ask).value == pytest.approx(plain.time_s(ask).value, rel=0.05)
    assert joined.time_s(ask).value != plain.time_s(ask).value


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_bound_holds_for_a_peak_that_had_no_gradients(stage):
    """A peak of the loss has none yet, so ranks that share gradients take none off it."""
    model = fitted("train", train_points(), zero_stage=stage)
    software = model.profile.software
    weights, gradients, optimizer = (SHAPE.params * width / 2**20 for width in (2, 2, 4))
    for ranks in (2, 8, 64):
        alone, many = (model.memory_mib(Query(4, 4096, dp=dp)) for dp in (1, ranks))
        loss = alone.value - weights - optimizer
        loss += weights / (ranks if stage == 3 else 1) + optimizer / (ranks if stage else 1)
        assert many.high >= loss
        assert many.low <= many.value <= many.high
        kept = state_mib(SHAPE, software, Layout(), ranks)
        assert many.value >= kept + (gradients if stage == 0 else 0)


def test_sharded_weights_are_whole_while_a_layer_is_at_work():
    """ZeRO-3 gathers a layer, the next one and the tables: one rank alone gathers nothing."""
    model = fitted("train", train_points(), zero_stage=3)
    tables = 2 * SHAPE.vocab * SHAPE.hidden
    gathered = 2 * (tables + 2 * (SHAPE.params - tables) / SHAPE.layers) / 2**20
    alone, many = (model.memory_mib(Query(4, 4096, dp=dp)).value for dp in (1, 1024))
    states = 8 * SHAPE.params * (1 - 1 / 1024) / 2**20
    assert many == pytest.approx(alone - states + gathered)


def test_an_assumed_peak_is_not_free_of_what_ranks_hold():
    """With --allow-prior the peak of one GPU was given for any number of ranks."""
    few = load_profile(shipped_folder() / "h200-qwen2.5-1.5b-train-ddp")
    donors = [shipped("0.5b-train"), shipped("7b-train")]
    together = fit_profile(few.file, few.points, donors=donors)
    peaks = [together.memory_mib(Query(8, 2048, dp=dp), allow_prior=True) for dp in (1, 2, 8)]
    buckets = gradient_bytes(few.file.model, few.file.software, Layout()) / 2**20
    assert [peak.value - peaks[0].value for peak in peaks] == pytest.approx([0.0, buckets, buckets])
    asked = [Query(8, 2048, dp=dp) for dp in (1, 2, 8)]
    assert [each.value for each in together.memories(asked, allow_prior=True)] == pytest.approx(
        [peak.value for peak in peaks]
    )


def test_measured_ranks_scale_what_is_predicted_for_more():
    """A cluster whose two-GPU steps take 30 % longer than the link says will not do better on four."""
    plain = fitted("train", train_points())
    slow = points_of(
        lambda b, s: 1.3 * plain.time_s(Query(b, s, dp=2)).value, None, [(4, 4096), (8, 2048)], dp=2
    )
    model = fitted("train", [*train_points(), *slow])
    ask = Query(4, 8192, dp=4)
    assert model.time_s(ask).value == pytest.approx(1.3 * plain.time_s(ask).value, rel=0.01)


def test_sharded_ranks_gather_weights_twice_and_scatter_gradients_once():
    """ZeRO-3 moves bf16 weights twice and fp32 gradients once: 8 bytes a parameter, not 8 + 4."""
    file = profile_file("train", precision="fp32-master/bf16", zero_stage=3)
    model, per_s = file.model, 300.0 * 0.89 * 2**30
    by_hand = 3 / 4 * model.params * (2 * 2 + 4) / per_s + 2 * 0.3e-3 + 3 * 3 * 3.4e-6
    assert ranks_s(model, file.software, Layout(), 4, Link(300.0)) == pytest.approx(by_hand)
    plain = profile_file("train", precision="fp32-master/bf16")
    by_hand = 2 * 3 / 4 * model.params * 4 / per_s + 0.3e-3 + 2 * 3 * 3.4e-6
    assert ranks_s(model, plain.software, Layout(), 4, Link(300.0)) == pytest.approx(by_hand)


def test_more_ranks_than_measured_are_an_extrapolation_that_grows_less_sure():
    """A step on 64 ranks was called interpolated, with the bounds of two ranks."""
    alone = shipped("1.5b-train")
    steps = {dp: alone.time_s(Query(8, 2048, dp=dp, link_gib_per_s=300.0)) for dp in (1, 2, 4, 64)}
    assert steps[1].origin is Origin.MEASURED
    assert {steps[dp].origin for dp in (2, 4, 64)} == {Origin.EXTRAPOLATED}
    widths = [steps[dp].high / steps[dp].value for dp in (2, 4, 64)]
    assert widths == sorted(widths)
    assert widths[-1] > 1.2


def test_an_assumed_step_is_not_free_of_the_exchange_of_gradients():
    """With --allow-prior the step of one GPU was given for any number of ranks."""
    few = load_profile(
        shipped_folder() / "h200-qwen2.5-1.5b-train-ddp"
    )  # too few points for a fit of its own
    donors = [shipped("0.5b-train"), shipped("7b-train")]
    together = fit_profile(few.file, few.points, donors=donors)
    alone, two, eight = (
        together.time_s(Query(8, 2048, dp=dp, link_gib_per_s=300.0), allow_prior=True) for dp in (1, 2, 8)
    )
    assert two.origin is eight.origin is Origin.ASSUMED
    assert alone.value < two.value < eight.value
    assert alone.low <= two.low <= two.value <= two.high


@pytest.mark.parametrize("model", ["0.5b", "1.5b"])
@pytest.mark.parametrize("ranks", [4, 8, 43])
def test_not_to_have_measured_ranks_is_never_surer_than_to_have(model, ranks):
    """A second profile over two GPUs made 43 of them look less sure than one GPU alone did."""
    alone = load_profile(shipped_folder() / f"h200-qwen2.5-{model}-train")
    together = load_profile(shipped_folder() / f"h200-qwen2.5-{model}-train-ddp")
    ask = Query(4, 2048, dp=ranks, link_gib_per_s=300.0)
    unseen = fit_profile(alone.file, alone.points).time_s(ask)
    seen = fit_profile(alone.file, alone.points, extra=[(together.file, together.points)]).time_s(ask)
    assert unseen.high / unseen.value >= seen.high / seen.value
    assert unseen.low / unseen.value <= seen.low / seen.value


def test_bounds_widen_with_every_doubling_of_ranks_that_nobody_measured():
    """Whether or not other ranks were measured, 64 are not known as well as two."""
    alone = shipped("7b-train")
    steps = [alone.time_s(Query(1, 4096, dp=dp, link_gib_per_s=300.0)) for dp in (2, 4, 8, 16, 32, 64)]
    widths = [step.high / step.value for step in steps]
    assert all(wider > narrower for narrower, wider in itertools.pairwise(widths))


def test_ranks_beyond_those_measured_are_told_in_doublings():
    """43 ranks answered from one or two must not read like three."""
    assert ranks_note({1, 2}, 2) is None
    assert "2 data-parallel ranks, 1 rank measured, 1 doubling more" in ranks_note({1}, 2)
    assert "43 data-parallel ranks, up to 2 ranks measured, 4.4 doublings more" in ranks_note({1, 2}, 43)
