"""Memory of engines of which only times were measured."""

import pytest
from affine_profile import profile_file

from libra_plan.errors import RefusedError
from libra_plan.models.fit import fit_profile
from libra_plan.models.memory.shapes import cache_share, kv_mib_per_token
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Origin
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.model_shapes import model_shape
from libra_plan.profiles.schema import Software


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
    one = fitted.memory_mib(Query(4, None, 1024, 1024, tp=2))
    assert one.origin is Origin.ASSUMED
    assert one.low > 70.55e9 / 2 / 2**20
    assert fitted.memory_mib(Query(8, None, 1024, 1024, tp=2)).value > one.value
    assert fitted.static_mib(Layout(tp=2)).value < one.value
    with pytest.raises(RefusedError):
        fitted.memory_mib(Query(4, None, 1024, 1024, tp=8))  # never measured: needs --allow-prior


def test_other_phases_still_refuse_unmeasured_memory():
    """Only an engine's memory follows from its shape."""
    loaded = load_profile(shipped_folder() / "h200-qwen2.5-0.5b-train-ddp")
    assert profile_file("train").phase == loaded.file.phase
    fitted = fit_profile(loaded.file, loaded.points)
    with pytest.raises(RefusedError):
        fitted.memory_mib(Query(4, 1024))
