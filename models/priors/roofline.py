"""The least seconds that a GPU's data sheet allows one step: no guess may lie below it.

    generation: max(2·B·P ÷ operations/s, (weights + B·c·KV bytes) ÷ bandwidth)
    passes:     r·(2·N·P + 2·L·h·N·S) ÷ operations/s, r = 1 forward, 3 with backward, 4 recomputed

P: parameters that multiply (embeddings are looked up), N = B·S tokens, L layers, h = heads × head
size; attention is causal, so half of S² counts. Split over tp·pp·cp GPUs.
"""

from __future__ import annotations

import numpy as np

from libra_plan.models.costs.base import Array, Places
from libra_plan.models.memory.states import kv_mib_per_token, tables_of
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.hardware import GpuLimits, bytes_per_weight, gpu_limits
from libra_plan.profiles.schema import ModelShape, ProfileFile, Software
from libra_plan.profiles.units import MIB

__all__ = ["multiplying_params", "passes_of", "roofline_s"]

_ONE = Layout()


def multiplying_params(model: ModelShape) -> float:
    """Count the parameters a token is multiplied with, the output's table included."""
    if model.experts is not None:
        return float(max((model.active_params or 0) - model.vocab * model.hidden, 0))
    return float(model.params - (tables_of(model) - 1) * model.vocab * model.hidden)


def passes_of(profile: ProfileFile) -> int:
    """Count forward passes' worth of work in one step: backward costs two, recomputation one more."""
    if profile.phase != "train":
        return 1
    return 4 if profile.software.recompute == "full" else 3


def roofline_s(profile: ProfileFile, at: Places, layout: Layout = _ONE) -> Array | None:
    """Return the least seconds at places (rows, 3); None for a class whose limits are unknown."""
    gpu = gpu_limits(profile.hardware.gpu_class)
    if gpu is None:
        return None
    if profile.phase in ("decode", "serve"):
        return _generation_s(profile, gpu, at, layout)
    return _pass_s(profile, gpu, at, layout)


def _operations_per_s(gpu: GpuLimits, software: Software) -> float:
    return gpu.bf16_per_s * (2.0 if bytes_per_weight(software.precision) <= 1.0 else 1.0)


def _generation_s(profile: ProfileFile, gpu: GpuLimits, at: Places, layout: Layout) -> Array:
    model, software = profile.model, profile.software
    params, gpus = multiplying_params(model), layout.tp * layout.cp  # pipeline stages follow each other
    batch, context = at[:, 0], at[:, 1]
    weights = bytes_per_weight(software.precision) * params / gpus
    cache = kv_mib_per_token(model, software, Layout(tp=layout.tp)) * MIB / layout.cp
    read: Array = (weights + cache * batch * context) / gpu.bandwidth_bytes_per_s
    worked = 2.0 * params * batch / gpus / _operations_per_s(gpu, software)
    return np.maximum(read, worked)


def _pass_s(profile: ProfileFile, gpu: GpuLimits, at: Places, layout: Layout) -> Array:
    model, tokens = profile.model, at[:, 0] * at[:, 1]
    body = max(multiplying_params(model) - model.vocab * model.hidden, 0.0)  # a critic has no output table
    weights = 2.0 * body * tokens * (passes_of(profile) if profile.software.lora_rank is None else 1)
    attended = 2.0 * model.layers * model.heads * model.head_dim * tokens * at[:, 1] * passes_of(profile)
    seconds: Array = (weights + attended) / layout.gpus_per_replica
    return seconds / _operations_per_s(gpu, profile.software)
