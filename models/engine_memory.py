"""Memory of a serving engine from its model's shape, where a serving table measured only times.

    weights ÷ tp·pp + reserve + KV per token · Σ contexts

An engine allocates its KV cache ahead and fills it by blocks, so what a batch needs follows from
its tokens alone. The reserve (activations, CUDA graphs, context: 3.5 GiB; communication buffers:
0, 342 or 392 MiB at tp 1, 2, 4 and more) is what AIConfigurator takes for its engines. Nothing of
this was measured: answers are assumed, between no reserve and twice the reserve.
"""

from __future__ import annotations

from libra_plan.models.memory import CacheForm
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.states import weights_mib
from libra_plan.profiles.hardware import bytes_per_weight
from libra_plan.profiles.schema import ModelShape, ProfileFile, Software
from libra_plan.profiles.units import MIB

__all__ = [
    "BLOCK_TOKENS",
    "cache_share",
    "communication_mib",
    "engine_memory",
    "engine_static",
    "kv_mib_per_token",
]

BLOCK_TOKENS = 16  # a sequence leaves part of its last KV block empty
_RESERVE_MIB = 3584.0
_COMMUNICATION_MIB = {1: 0.0, 2: 342.0}
_COMMUNICATION_MOST_MIB = 392.0


def communication_mib(tensor_parallel: int) -> float:
    """Give NCCL's buffers, outside the allocator: 0, 342 or 392 MiB at tp 1, 2, 4 and more.

    What AIConfigurator takes for its engines.
    """
    return _COMMUNICATION_MIB.get(tensor_parallel, _COMMUNICATION_MOST_MIB)


def kv_mib_per_token(model: ModelShape, software: Software, layout: Layout) -> float:
    """Give the MiB of one token's keys and values on one GPU; KV heads fewer than ranks are copied."""
    heads = max(model.kv_heads / layout.tp, 1.0)
    width = bytes_per_weight(software.kv_precision) if software.kv_precision else 2.0
    return 2.0 * model.layers / layout.pp * heads * model.head_dim * width / MIB


def engine_memory(
    profile: ProfileFile, layout: Layout, batch: float, prompt: float, output: float
) -> Estimate:
    """Estimate the MiB per GPU that `batch` requests of prompt + output tokens need."""
    form = _form(profile, layout)
    cache = form.per_sequence_mib * batch + form.per_token_mib * batch * (prompt + output - 1)
    return _between(profile, layout, cache)


def engine_static(profile: ProfileFile, layout: Layout) -> Estimate:
    """Estimate the MiB per GPU of an engine with an empty cache."""
    return _between(profile, layout, 0.0)


def cache_share(software: Software, memory_mib: float, static_mib: float) -> float:
    """Give the MiB per GPU that the engine's own settings let it use, of `memory_mib`.

    vLLM's `gpu_memory_utilization` is a share of all memory, SGLang's `mem_fraction_static` too;
    TensorRT-LLM's `free_gpu_memory_fraction` is a share of what the loaded model leaves free.
    """
    flags = software.flags
    for name in ("gpu_memory_utilization", "mem_fraction_static"):
        share = flags.get(name)
        if isinstance(share, float) and 0 < share <= 1:
            return share * memory_mib
    share = flags.get("free_gpu_memory_fraction")
    if isinstance(share, float) and 0 < share <= 1:
        return static_mib + share * max(memory_mib - static_mib, 0.0)
    return memory_mib


def _form(profile: ProfileFile, layout: Layout) -> CacheForm:
    per_token = kv_mib_per_token(profile.model, profile.software, layout)
    return CacheForm(
        weights_mib(profile.model, profile.software, layout) + _reserve_mib(layout),
        BLOCK_TOKENS * per_token,
        per_token,
    )


def _reserve_mib(layout: Layout) -> float:
    return _RESERVE_MIB + communication_mib(layout.tp)


def _between(profile: ProfileFile, layout: Layout, cache_mib: float) -> Estimate:
    low, reserve = weights_mib(profile.model, profile.software, layout) + cache_mib, _reserve_mib(layout)
    return Estimate(low + reserve, low, low + 2 * reserve, "MiB", Origin.ASSUMED)
