"""Bytes a model keeps on one GPU whatever the batch: weights, gradients, optimizer states."""

from __future__ import annotations

from libra_plan.models.parallelism import Layout
from libra_plan.profiles.hardware import bytes_per_weight
from libra_plan.profiles.schema import ModelShape, ProfileFile, Software
from libra_plan.profiles.units import MIB

__all__ = [
    "adapter_mib",
    "adapter_params",
    "gradients_mib",
    "optimizer_mib",
    "standing_mib",
    "state_mib",
    "weights_mib",
]

_GRADIENT_BYTES = 2.0


def weights_mib(model: ModelShape, software: Software, layout: Layout) -> float:
    """Give the MiB of one GPU's weights in the precision of the forward pass.

    Experts are split over the replica's GPUs like everything else; with more expert than tensor
    parallelism they take less than this.
    """
    return bytes_per_weight(software.precision) * model.params / (layout.tp * layout.pp) / MIB


def standing_mib(profile: ProfileFile, layout: Layout, ranks: int) -> float:
    """Give the MiB per GPU that a role keeps whatever its batch: training states, or weights."""
    if profile.phase == "train":
        return state_mib(profile.model, profile.software, layout, ranks)
    return weights_mib(profile.model, profile.software, layout)


def adapter_params(model: ModelShape, rank: int) -> int:
    """Count LoRA's parameters: r·(in + out) beside each of the seven projections of every layer.

    Queries, keys, values, output, gate, up and down; with experts, one adapter for all of them.
    """
    attention = model.heads * model.head_dim
    keys = model.kv_heads * model.head_dim
    sides = (
        2 * (model.hidden + attention)  # queries and output
        + 2 * (model.hidden + keys)
        + 3 * (model.hidden + model.ffn)
    )
    return rank * sides * model.layers


def adapter_mib(model: ModelShape, rank: int) -> float:
    """Give the MiB of an adapter in bf16 that an engine holds, an upper bound on any of its GPUs.

    Engines shard adapters in part at most, so they are counted whole.
    """
    return 2.0 * adapter_params(model, rank) / MIB


def state_mib(model: ModelShape, software: Software, layout: Layout, ranks: int) -> float:
    """Give the MiB of one rank's training states at a ZeRO stage over `ranks` ranks.

    Adam with fp32 masters: 2 + 2 + 12 bytes per parameter (weights, gradients, optimizer), of which
    ZeRO-1 shards the optimizer, ZeRO-2 also gradients, ZeRO-3 and FSDP all. Pure bf16: 2 + 2 + 4.
    With LoRA only the adapters have gradients and optimizer states; the model itself is frozen and
    ZeRO-3 shards it too.
    """
    split = layout.tp * layout.pp * MIB
    if software.lora_rank is None:
        return _bytes_per_param(software, ranks) * model.params / split
    frozen = weights_mib(model, software, layout) / (ranks if software.zero_stage == 3 else 1)
    return frozen + _bytes_per_param(software, ranks) * adapter_params(model, software.lora_rank) / split


def gradients_mib(model: ModelShape, software: Software, layout: Layout, ranks: int) -> float:
    """Give the MiB that `state_mib` counts for one rank's gradients: 2 bytes of what is trained."""
    trained = model.params if software.lora_rank is None else adapter_params(model, software.lora_rank)
    whole = _GRADIENT_BYTES * trained / (layout.tp * layout.pp * MIB)
    return whole / (ranks if software.zero_stage >= 2 else 1)


def optimizer_mib(model: ModelShape, software: Software, layout: Layout, ranks: int) -> float:
    """Give the MiB of one rank's optimizer states: masters and moments of what is trained."""
    trained = model.params if software.lora_rank is None else adapter_params(model, software.lora_rank)
    whole = _optimizer_bytes(software) * trained / (layout.tp * layout.pp * MIB)
    return whole / (ranks if software.zero_stage >= 1 else 1)


def _optimizer_bytes(software: Software) -> float:
    return 4.0 if software.precision == "bf16" else 12.0


def _bytes_per_param(software: Software, ranks: int) -> float:
    shares = [2.0, _GRADIENT_BYTES, _optimizer_bytes(software)]
    sharded = software.zero_stage  # stage s shards the last s of (weights, gradients, optimizer)
    return sum(
        share / ranks if index >= len(shares) - sharded else share for index, share in enumerate(shares)
    )
