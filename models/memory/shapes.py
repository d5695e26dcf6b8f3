"""Peak memory of one GPU from the model's shape, where nothing was measured.

    training, scoring, decoding   peak = max(optimizer's step, backward pass, logits), MiB
    serving engine                weights ÷ tp·pp + reserve + KV per token · Σ contexts, MiB

Moments of a step follow one another, so they join by max. Activations of a layer take
s·b·h·(18 + 4·ffn/h) bytes in bf16 (Megatron's count, 34·s·b·h for ffn = 4h), and 5·a·s²·b more where
attention scores are kept (eager attention); with full recomputation only 2·s·b·h, and one live
layer. Logits with their loss take 8 bytes per token and word of the vocabulary forward and 12 with
their gradient (measured on H200; 6.1 and, with a fused loss, 0.44 were published). transformers
repeats the keys and values of one layer for every query head. Whether logits are worked through in
chunks is not known from a shape, so long micro-batches are overestimated. The upper bound leaves
room for what an allocator holds and does not use: up to 1.28 of the allocated peak in the shipped
decode rows, and the device's use is 1.33 of it in the median of published fine-tuning runs.

An engine allocates its KV cache ahead and fills it by blocks, so the memory of a batch follows from
its tokens alone. The reserve (activations, CUDA graphs, context, communication buffers) stands in the
file of the GPU class. Nothing of this was measured: answers are assumed, between no reserve and twice
the reserve.
"""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.models.memory.states import kv_mib_per_token, state_mib, weights_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.hardware import gpu_class
from libra_plan.profiles.schema import ModelShape, Phase, ProfileFile, Software
from libra_plan.profiles.units import MIB

__all__ = [
    "BLOCK_TOKENS",
    "Moments",
    "cache_share",
    "communication_mib",
    "engine_memory",
    "engine_static",
    "kept_activations_mib",
    "live_layer_mib",
    "logits_mib",
    "moments_of",
    "shape_memory",
]

LOGITS_BYTES = {"train": 12.0, "score": 8.0, "decode": 8.0, "serve": 8.0}
FUSED_LOGITS_BYTES = 0.44
RESERVE = 1.35
"""Upper bound over the estimate: fragmentation, and layers that are not split evenly."""
_BOUNDARY_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Moments:
    """The memory of one GPU at the moments of a step, MiB."""

    optimizer: float
    backward: float
    logits: float

    @property
    def peak(self) -> float:
        """The largest of them."""
        return max(self.optimizer, self.backward, self.logits)


def live_layer_mib(
    model: ModelShape, software: Software, layout: Layout, batch: float, length: float
) -> float:
    """Return the activations of one whole layer, MiB, with sequence parallelism beside tp."""
    tokens = batch * length / layout.cp
    per_token = model.hidden * 18.0 + 4.0 * model.ffn
    if software.flags.get("attention") == "eager":
        per_token += 5.0 * model.heads * length
    return tokens * per_token / layout.tp / MIB


def kept_activations_mib(
    model: ModelShape, software: Software, layout: Layout, batch: float, length: float
) -> float:
    """Return what the forward pass keeps for the backward pass, MiB.

    The first of p stages holds p micro-batches of 1/p of the layers, so pipelining saves nothing.
    """
    if software.recompute == "full":
        boundary = batch * length / layout.cp * model.hidden * _BOUNDARY_BYTES / layout.tp
        return model.layers * boundary / MIB
    flash = _without_scores(software) if software.recompute == "selective" else software
    return model.layers * live_layer_mib(model, flash, layout, batch, length)


def _without_scores(software: Software) -> Software:
    return Software(framework=software.framework, version=software.version, precision=software.precision)


def logits_mib(model: ModelShape, software: Software, phase: Phase, layout: Layout, tokens: float) -> float:
    """Return the logits with their loss, MiB; the vocabulary is split over tensor-parallel ranks."""
    width = FUSED_LOGITS_BYTES if software.flags.get("fused_loss") is True else LOGITS_BYTES[phase]
    return width * tokens / layout.cp * model.vocab / layout.tp / MIB


def shape_memory(profile: ProfileFile, layout: Layout, batch: float, length: float, ranks: int) -> Estimate:
    """Estimate the peak MiB that a role reserves on each GPU, from its model's shape alone.

    decode: `batch` sequences at context `length`. score and train: one micro-batch.
    """
    moments = moments_of(profile, layout, batch, length, ranks)
    least = weights_mib(profile.model, profile.software, layout)
    if profile.phase == "train":
        least = moments.optimizer
    return Estimate(moments.peak, least, moments.peak * RESERVE, "MiB", Origin.ASSUMED)


def moments_of(profile: ProfileFile, layout: Layout, batch: float, length: float, ranks: int = 1) -> Moments:
    """Return the memory at each moment of a role's step; a frozen role has no optimizer, only weights."""
    model, software = profile.model, profile.software
    logits = logits_mib(model, software, profile.phase, layout, batch * length)
    if profile.phase == "train":
        states = state_mib(model, software, layout, ranks)
        kept = kept_activations_mib(model, software, layout, batch, length)
        live = live_layer_mib(model, software, layout, batch, length) if software.recompute == "full" else 0.0
        return Moments(states, states + kept + live, states + kept + logits)
    weights = weights_mib(model, software, layout)
    if profile.phase == "score":
        passed = 2 * batch * length / layout.cp * model.hidden * _BOUNDARY_BYTES / layout.tp / MIB
        live = live_layer_mib(model, software, layout, batch, length)
        return Moments(weights, weights + passed + live, weights + passed + logits)
    cache = kv_mib_per_token(model, software, layout) * batch * length
    live = live_layer_mib(model, software, layout, batch, 1.0)
    if software.framework == "transformers":
        live += cache * layout.pp / model.layers * model.heads / model.kv_heads
    words = logits_mib(model, software, profile.phase, layout, batch)
    return Moments(weights, weights + cache + live, weights + cache + words)


BLOCK_TOKENS = 16  # a sequence leaves part of its last KV block empty


def communication_mib(class_name: str, tensor_parallel: int) -> float:
    """Return NCCL's buffers, MiB outside the allocator, at tp 1, 2, 4 and more of a GPU class."""
    alone, two, more = gpu_class(class_name).engine.communication_mib
    return {1: alone, 2: two}.get(tensor_parallel, more)


def engine_memory(
    profile: ProfileFile, layout: Layout, batch: float, prompt: float, output: float
) -> Estimate:
    """Estimate the MiB per GPU that `batch` requests of prompt + output tokens need."""
    per_token = kv_mib_per_token(profile.model, profile.software, layout)
    return _between(profile, layout, per_token * batch * (BLOCK_TOKENS + prompt + output - 1))


def engine_static(profile: ProfileFile, layout: Layout) -> Estimate:
    """Estimate the MiB per GPU of an engine with an empty cache."""
    return _between(profile, layout, 0.0)


def cache_share(software: Software, memory_mib: float, static_mib: float) -> float:
    """Return the MiB per GPU that the engine's own settings let it use, of `memory_mib`.

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


def _between(profile: ProfileFile, layout: Layout, cache_mib: float) -> Estimate:
    low = weights_mib(profile.model, profile.software, layout) + cache_mib
    name = profile.hardware.gpu_class
    reserve = gpu_class(name).engine.reserve_mib + communication_mib(name, layout.tp)
    return Estimate(low + reserve, low, low + 2 * reserve, "MiB", Origin.ASSUMED)
