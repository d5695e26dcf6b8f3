"""Layouts that were not measured: stated penalties, never in proportion."""

import msgspec
import pytest
from affine_profile import SHAPE, profile_file
from fitting import fitted, points_of
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.fit import fit_profile
from libra_plan.models.memory.states import state_mib
from libra_plan.models.network import Link, ring_exchange_s, tensor_reduce_s
from libra_plan.models.packing import Share
from libra_plan.models.parallelism import Layout, layout_faults
from libra_plan.models.pricing.passes import share_s
from libra_plan.models.priors.layouts import can_carry, layout_speedup, penalty_words, tensor_speedup
from libra_plan.models.quantities import Origin
from libra_plan.models.query import Query
from libra_plan.profiles.schema import ModelShape

SIZE = st.sampled_from([1, 2, 4, 8, 16])
SWEEP = [(1, 2**p) for p in range(9, 16)] + [(b, 16384 // b) for b in (2, 4, 8, 16, 32)]


def train_law(batch, length):
    return 0.03 + 3e-5 * batch * length + 7e-10 * batch * length**2


TRAIN = fitted("train", points_of(train_law, lambda b, s: 70000 + 0.3 * b * s, SWEEP))


@given(SIZE, SIZE, st.booleans())
def test_more_gpus_are_faster_but_never_in_proportion(measured, asked, experts):
    """Assuming a speed-up of two per doubling would hand large layouts all GPUs."""
    speed = tensor_speedup(measured, asked, experts=experts)
    assert speed.least <= speed.likely <= speed.greatest
    if asked > measured:
        assert speed.least >= 1
        assert speed.greatest < asked / measured
    back = tensor_speedup(asked, measured, experts=experts)
    assert abs(back.likely * speed.likely - 1) < 1e-9


@pytest.mark.parametrize(("ranks", "least", "most"), [(2, 1.4, 1.9), (4, 2.2, 2.6), (8, 3.4, 4.7)])
def test_context_ranks_gain_what_long_sequences_gained(ranks, least, most):
    """The likely gain lies in what two published sweeps show, the bounds around all of it."""
    speed = layout_speedup(Layout(), Layout(cp=ranks), experts=False)
    assert least <= speed.likely <= most
    assert speed.greatest < ranks
    assert speed.least <= least * 1.01


@pytest.mark.parametrize("asked", [Layout(tp=2), Layout(cp=4), Layout(pp=2), Layout(tp=2, cp=2, pp=2)])
def test_unmeasured_training_layouts_are_assumed_and_never_linear(asked):
    """Every kind of parallelism answers only with a prior, and costs more than its share."""
    query = Query(4, 4096, layout=asked)
    with pytest.raises(RefusedError, match="--allow-prior"):
        TRAIN.time_s(query)
    one, more = TRAIN.time_s(Query(4, 4096)), TRAIN.time_s(query, allow_prior=True)
    assert more.origin is Origin.ASSUMED
    assert more.value > one.value / asked.gpus_per_replica
    assert more.low <= more.value < more.high
    memory = TRAIN.memory_mib(query, allow_prior=True)
    states = state_mib(SHAPE, TRAIN.profile.software, asked, 1)
    assert memory.value > states
    assert memory.high >= memory.value


def test_a_micro_batch_is_no_faster_through_a_pipeline():
    """Stages work one after the other; what is gained comes from several micro-batches."""
    one = TRAIN.time_s(Query(4, 4096)).value
    assert TRAIN.time_s(Query(4, 4096, layout=Layout(pp=4)), allow_prior=True).value > one


def test_ring_attention_cannot_be_faster_than_its_traffic():
    """On a slow link what is passed on is the floor."""
    file = profile_file("train")
    bare = {name: getattr(file, name) for name in file.__struct_fields__}
    hardware = {name: getattr(file.hardware, name) for name in file.hardware.__struct_fields__}
    slow = type(file)(
        **{**bare, "hardware": type(file.hardware)(**{**hardware, "intra_node_gib_per_s": 0.5})}
    )
    model = fit_profile(slow, points_of(train_law, None, SWEEP))
    floor = ring_exchange_s(SHAPE, slow.software, "train", Layout(cp=4), 16384, Link(0.5))
    assert model.time_s(Query(4, 4096, layout=Layout(cp=4)), allow_prior=True).low == pytest.approx(floor)
    unknown = type(file)(
        **{**bare, "hardware": type(file.hardware)(**{**hardware, "intra_node_gib_per_s": None})}
    )
    model = fit_profile(unknown, points_of(train_law, None, SWEEP))
    with pytest.raises(RefusedError, match="intra_node_gib_per_s"):
        model.time_s(Query(4, 4096, layout=Layout(cp=4)), allow_prior=True)


def test_experts_need_to_know_how_many_a_token_visits():
    """All-to-all traffic follows from it; unknown is refused, known is added on top."""
    file = profile_file("train")
    fields = {name: getattr(file, name) for name in file.__struct_fields__}
    shape = {name: getattr(SHAPE, name) for name in SHAPE.__struct_fields__}
    times = {}
    for visited in (None, 2, 8):
        model = ModelShape(**{**shape, "experts": 64, "experts_per_token": visited})
        made = fit_profile(type(file)(**{**fields, "model": model}), points_of(train_law, None, SWEEP))
        if visited is None:
            with pytest.raises(RefusedError, match="experts_per_token"):
                made.time_s(Query(4, 4096, layout=Layout(tp=4, ep=4)), allow_prior=True)
        else:
            times[visited] = made.time_s(Query(4, 4096, layout=Layout(tp=4, ep=4)), allow_prior=True).value
    assert times[8] > times[2]


def test_generation_has_no_context_parallel_table():
    """A KV cache split by context was never measured here, so it is not carried over."""
    assert not can_carry(Layout(), Layout(cp=2), profile_file("decode"))
    assert can_carry(Layout(), Layout(cp=2), profile_file("train"))
    assert not can_carry(Layout(), Layout(tp=3), profile_file("train"))
    assert not can_carry(Layout(), Layout(), profile_file("train"))


def test_a_layout_that_the_model_cannot_be_split_into_is_refused_with_the_reason():
    """Asked for 64 ranks of 28 heads, priors gave a small part of the memory such ranks would need."""
    with pytest.raises(RefusedError, match="tp 64 does not divide 28 heads"):
        fitted().memory_mib(Query(4, 2048, layout=Layout(tp=64)), allow_prior=True)
    with pytest.raises(RefusedError, match="tp 64 does not divide 28 heads"):
        fitted().time_s(Query(4, 2048, layout=Layout(tp=64)), allow_prior=True)


@given(st.sampled_from([2, 4]), st.sampled_from([1, 2, 4]))
def test_a_cache_is_split_by_its_heads_and_no_further(tp, kv_heads):
    """KV heads fewer than ranks are copied, so each rank holds a whole one."""
    model = msgspec.structs.replace(SHAPE, kv_heads=kv_heads)
    file = msgspec.structs.replace(profile_file("decode"), model=model)
    made = fit_profile(file, points_of())
    cache = 0.05 * 64 * 8192 / min(tp, kv_heads)
    answer = made.memory_mib(Query(64, 8192, layout=Layout(tp=tp)), allow_prior=True)
    assert answer.value >= cache
    assert answer.high >= 1.25 * cache


def test_the_penalty_is_put_in_words():
    """The plan must say what it assumed, from what, and how sure that is."""
    said = penalty_words(Layout(), Layout(tp=4, pp=2), experts=False)
    assert "tp4 pp2 was not measured; assumed from tp1" in said
    assert "2.32 times the speed (1.95 to 2.72) on 8 times the GPUs" in said
    assert "pipeline bubble" in said


def test_experts_fold_into_the_gpus_of_a_stage():
    """Experts over 8 ranks need eight GPUs in tp and cp together, and experts it divides."""
    shape = {name: getattr(SHAPE, name) for name in SHAPE.__struct_fields__}
    model = ModelShape(**{**shape, "experts": 64})
    assert layout_faults(Layout(tp=2, cp=4, ep=8), model) == ()
    (fault,) = layout_faults(Layout(tp=4, ep=8), model)
    assert "tp·cp" in fault


def even(**rest):
    """Fit a training step of a model that splits eight ways."""
    model = msgspec.structs.replace(SHAPE, layers=32, heads=32, kv_heads=8, **rest)
    file = msgspec.structs.replace(profile_file("train"), model=model)
    return fit_profile(file, points_of(train_law, None, SWEEP))


EVEN = even()
MOE = even(experts=64, experts_per_token=2)


@pytest.mark.parametrize("kind", ["tp", "pp", "dp", "cp", "ep"])
@given(st.sampled_from([2, 4, 8]), st.integers(1, 64), st.sampled_from([(1, 4096), (4, 2048), (2, 8192)]))
def test_every_kind_of_parallelism_gains_less_than_its_gpus(kind, degree, micro_batches, place):
    """Work done per second and GPU must fall with every degree: nothing scales in proportion."""
    model = MOE if kind == "ep" else EVEN
    batch, length = place
    tp = degree if kind == "ep" else 1  # experts fold into the GPUs of a stage
    share = Share(micro_batches, float(batch * length), float(batch * length**2))
    one, many = Layout(tp=tp), Layout(**{**{"tp": tp}, kind: degree}) if kind != "dp" else Layout()
    dp = degree if kind == "dp" else 1
    before = share_s(model, share, one, 1.0, True).value
    query = Query(batch, length, layout=many, dp=dp)
    stages = many.pp
    after = model.time_s(query, allow_prior=True).value * (micro_batches + stages - 1) / stages
    times_the_gpus = dp * many.gpus_per_replica / one.gpus_per_replica
    gain = dp * before / after
    assert gain < times_the_gpus if kind != "ep" else gain < 1
    if kind == "pp":
        assert gain <= degree * micro_batches / (micro_batches + degree - 1)


def test_tensor_parallel_ranks_over_a_slow_link_are_bound_by_their_sums():
    """Speed-ups were published within a node; across nodes the all-reduces are most of a step."""
    file = profile_file("train")
    hardware = msgspec.structs.replace(file.hardware, intra_node_gib_per_s=1.0)
    slow = fit_profile(msgspec.structs.replace(file, hardware=hardware), points_of(train_law, None, SWEEP))
    floor = tensor_reduce_s(SHAPE, file.software, "train", Layout(tp=4), 16384, Link(1.0))
    alone = slow.time_s(Query(4, 4096))
    assert floor > alone.value
    assert slow.time_s(Query(4, 4096, layout=Layout(tp=4)), allow_prior=True).low == pytest.approx(floor)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Layout(tp=2), "no faster than its all-reduces"),
        (Layout(cp=2), "ring attention"),
        (Layout(pp=2), "pipeline bubble"),
        (Layout(tp=4, ep=4), "all-to-all"),
    ],
)
def test_each_penalty_has_its_words(layout, said):
    """A reader of the answer must see what was charged."""
    assert said in penalty_words(Layout(), layout, experts=layout.ep > 1)
