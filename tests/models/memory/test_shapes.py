"""Memory from a model's shape against sums done by hand, and against what was measured."""

import pytest
from affine_profile import SHAPE, profile_file
from fitting import decode_law, fitted, points_of

from libra_plan.errors import RefusedError
from libra_plan.models.fit import fit_profile
from libra_plan.models.memory.shapes import (
    cache_share,
    communication_mib,
    kept_activations_mib,
    live_layer_mib,
    logits_mib,
    moments_of,
    shape_memory,
)
from libra_plan.models.memory.states import kv_mib_per_token
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Origin
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.model_shapes import model_shape
from libra_plan.profiles.schema import Software

MIB = 2**20
PLAIN = profile_file("train").software
FULL = profile_file("train", recompute="full").software


def test_a_live_layer_follows_the_count_of_its_tensors():
    """18 hidden and 4 feed-forward sizes a token: 34 hidden sizes where ffn is four of them."""
    by_hand = 2 * 4096 * (18 * 3584 + 4 * 18944) / MIB
    assert live_layer_mib(SHAPE, PLAIN, Layout(), 2, 4096) == pytest.approx(by_hand)
    assert live_layer_mib(SHAPE, PLAIN, Layout(tp=4, cp=2), 2, 4096) == pytest.approx(by_hand / 8)


def test_eager_attention_keeps_scores():
    """5 bytes a head and pair of tokens more, unless they are recomputed."""
    eager = profile_file("train", flags={"attention": "eager"}).software
    more = 5 * 28 * 4096**2 / MIB
    flash = live_layer_mib(SHAPE, PLAIN, Layout(), 1, 4096)
    assert live_layer_mib(SHAPE, eager, Layout(), 1, 4096) == pytest.approx(flash + more)
    selective = profile_file("train", flags={"attention": "eager"}, recompute="selective").software
    assert kept_activations_mib(SHAPE, selective, Layout(), 1, 4096) == pytest.approx(28 * flash)


def test_full_recomputation_keeps_layer_borders_only():
    """28 layers x 4096 tokens x 3584 x 2 bytes; pipeline stages hold as many micro-batches instead."""
    by_hand = 28 * 4096 * 3584 * 2 / MIB
    assert kept_activations_mib(SHAPE, FULL, Layout(), 1, 4096) == pytest.approx(by_hand)
    assert kept_activations_mib(SHAPE, FULL, Layout(pp=4), 1, 4096) == pytest.approx(by_hand)


def test_logits_take_eight_or_twelve_bytes_a_word_unless_fused():
    """4096 tokens x 152,064 words; split over tp; training holds their gradient too."""
    fused = profile_file("train", flags={"fused_loss": True}).software
    words = 4096 * 152_064 / MIB
    assert logits_mib(SHAPE, PLAIN, "train", Layout(tp=2), 4096) == pytest.approx(12 * words / 2)
    assert logits_mib(SHAPE, PLAIN, "score", Layout(), 4096) == pytest.approx(8 * words)
    assert logits_mib(SHAPE, fused, "train", Layout(), 4096) == pytest.approx(0.44 * words)


def test_moments_of_a_step_join_by_max():
    """States at the optimizer; with activations in the backward pass; with logits before it."""
    file = profile_file("train", precision="fp32-master/bf16", recompute="full")
    moments = moments_of(file, Layout(), 1, 4096, 1)
    states = 16 * SHAPE.params / MIB
    assert moments.optimizer == pytest.approx(states)
    assert moments.backward - states == pytest.approx(
        28 * 28 + live_layer_mib(SHAPE, FULL, Layout(), 1, 4096)
    )
    assert moments.logits - states == pytest.approx(
        28 * 28 + logits_mib(SHAPE, PLAIN, "train", Layout(), 4096)
    )
    assert moments.peak == max(moments.optimizer, moments.backward, moments.logits)
    assert shape_memory(file, Layout(), 1, 4096, 1).high == pytest.approx(1.35 * moments.peak)


def test_a_frozen_role_has_weights_only():
    """A reference holds 2 bytes a parameter whatever the ranks, and no optimizer."""
    found = moments_of(profile_file("score"), Layout(tp=2), 4, 1024)
    assert found.optimizer == pytest.approx(SHAPE.params / MIB)
    assert found.logits > found.optimizer


def test_a_generating_role_has_its_cache():
    """2 x 28 layers x 4 heads x 128 x 2 bytes a token; split over tp until heads run out."""
    per_token = 2 * 28 * 4 * 128 * 2 / MIB
    for tp, share in ((1, 1), (4, 4), (8, 4)):
        small, large = (moments_of(profile_file("decode"), Layout(tp=tp), 16, n).peak for n in (1024, 2048))
        assert large - small == pytest.approx(16 * 1024 * per_token / share)


def test_buffers_of_communication_grow_with_tensor_parallelism():
    """0, 342 and 392 MiB at tp 1, 2, 4 and more."""
    assert [communication_mib("h200_sxm", tp) for tp in (1, 2, 4, 8)] == [0.0, 342.0, 392.0, 392.0]


def test_transformers_repeats_keys_and_values_of_one_layer():
    """28 query heads over 4 KV heads, one layer of 28: a quarter of the cache more."""
    engine, plain = (profile_file("decode", framework=name) for name in ("vllm", "transformers"))
    small, large = (moments_of(engine, Layout(), 16, n).peak for n in (1024, 2048))
    more = [moments_of(plain, Layout(), 16, n).peak for n in (1024, 2048)]
    assert more[1] - more[0] == pytest.approx(1.25 * (large - small), rel=1e-3)


def test_the_upper_bound_covers_what_was_measured():
    """Of all shipped H200 points with memory at least 95 % lie under the bound, none 1 GiB above it.

    The first H200 set holds up to 890 MiB on small models that their shape does not tell.
    """
    over = []
    for folder in sorted(shipped_folder().glob("h200*-qwen2.5-*")):
        profile = load_profile(folder)
        for point in profile.points:
            if point.status == "ok" and point.peak_reserved_mib is not None:
                size = (point.batch_sequences, point.seq_len_tokens)
                bound = shape_memory(profile.file, Layout(), *size, 1).high
                over.append(point.peak_reserved_mib - bound)
    assert len(over) > 300
    assert sum(each <= 0 for each in over) / len(over) >= 0.95
    assert max(over) < 1024


def test_memory_nobody_measured_is_refused_unless_priors_are_allowed():
    """Times alone say nothing about memory; the shape does, as an assumption."""
    model = fitted("decode", points_of(decode_law, None))
    with pytest.raises(RefusedError, match="no memory was measured"):
        model.memory_mib(Query(8, 2048))
    answer = model.memory_mib(Query(8, 2048), allow_prior=True)
    assert answer.origin is Origin.ASSUMED
    assert answer.high == shape_memory(model.profile, Layout(), 8, 2048, 1).high
    assert model.static_mib(allow_prior=True).low == pytest.approx(2 * SHAPE.params / MIB)


def software(**flags):
    return Software(framework="vllm", version="1", precision="bf16", flags=flags)


def test_kv_of_a_published_example():
    """Qwen3-8B: 2·36·8·128·2 bytes a token, so 64 × 5,120 tokens take 45.0 GiB (as AIConfigurator has it)."""
    per_token = kv_mib_per_token(model_shape("qwen3-8b"), software(), Layout())
    assert per_token * 64 * 5120 / 1024 == pytest.approx(45.0)


def test_more_ranks_than_kv_heads_copy_them():
    """8 KV heads on 16 ranks: each rank still keeps one."""
    model = model_shape("llama-3.1-70b")
    assert kv_mib_per_token(model, software(), Layout(tp=16)) == kv_mib_per_token(
        model, software(), Layout(tp=8)
    )


def test_shares_of_memory_mean_what_each_engine_means():
    """The share of vLLM is of all memory, TensorRT-LLM's of what the loaded model leaves."""
    assert cache_share(software(gpu_memory_utilization=0.9), 1000.0, 600.0) == pytest.approx(900.0)
    assert cache_share(software(free_gpu_memory_fraction=0.9), 1000.0, 600.0) == pytest.approx(960.0)
    assert cache_share(software(), 1000.0, 600.0) == 1000.0


def test_a_serving_table_without_memory_is_answered_as_assumed():
    """Weights of 70B in fp8 and the KV of what runs, between no reserve and twice the reserve."""
    loaded = load_profile(shipped_folder() / "aic-h200-llama-3.1-70b-vllm-fp8")
    fitted = fit_profile(loaded.file, loaded.points)
    one = fitted.memory_mib(Query(4, None, 1024, 1024, layout=Layout(tp=2)))
    assert one.origin is Origin.ASSUMED
    assert one.low > 70.55e9 / 2 / 2**20
    assert fitted.memory_mib(Query(8, None, 1024, 1024, layout=Layout(tp=2))).value > one.value
    assert fitted.static_mib(Layout(tp=2)).value < one.value
    with pytest.raises(RefusedError):
        fitted.memory_mib(
            Query(4, None, 1024, 1024, layout=Layout(tp=8))
        )  # never measured: needs --allow-prior


def test_other_phases_still_refuse_unmeasured_memory():
    """Only an engine's memory follows from its shape."""
    loaded = load_profile(shipped_folder() / "h200-qwen2.5-0.5b-train-ddp")
    assert profile_file("train").phase == loaded.file.phase
    fitted = fit_profile(loaded.file, loaded.points)
    with pytest.raises(RefusedError):
        fitted.memory_mib(Query(4, 1024))
