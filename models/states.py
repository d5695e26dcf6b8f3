"""Bytes a model keeps on one GPU whatever the batch: weights, gradients, optimizer states."""

from __future__ import annotations

from libra_plan.models.parallelism import Layout
from libra_plan.profiles.schema import ModelShape, Software

__all__ = ["state_mib", "weights_mib"]

_MIB = 2.0**20


def weights_mib(model: ModelShape, software: Software, layout: Layout) -> float:
    """Give the MiB of one GPU's weights, two bytes per parameter (one with 8-bit weights)."""
    width = 1.0 if "8" in software.precision and "fp32" not in software.precision else 2.0
    return width * model.params / (layout.tp * layout.pp) / _MIB


def state_mib(model: ModelShape, software: Software, layout: Layout, ranks: int) -> float:
    """Give the MiB of one rank's training states at a ZeRO stage over `ranks` ranks.

    Adam with fp32 masters: 2 + 2 + 12 bytes per parameter (weights, gradients, optimizer), of which
    ZeRO-1 shards the optimizer, ZeRO-2 also gradients, ZeRO-3 and FSDP all. Pure bf16: 2 + 2 + 4.
    """
    optimizer = 4.0 if software.precision == "bf16" else 12.0
    shares = [2.0, 2.0, optimizer]
    sharded = software.zero_stage  # stage s shards the last s of (weights, gradients, optimizer)
    width = sum(
        share / ranks if index >= len(shares) - sharded else share for index, share in enumerate(shares)
    )
    return width * model.params / (layout.tp * layout.pp) / _MIB
