"""What data-parallel ranks add to a training step.

Ring all-reduce of n bytes over d ranks moves 2·(d − 1)/d·n through each link; sharded states
(ZeRO-3, FSDP) gather the weights twice and scatter the gradients once: 3·(d − 1)/d·n. It is charged
in full, as on top of the GPU's work: measured steps of 2 GPUs lie between none and all of it hidden.
A host-bound step grows by hooks on every parameter instead.
"""

from __future__ import annotations

from libra_plan.models.forms import Place, places_of
from libra_plan.models.parallelism import Layout
from libra_plan.models.soft_floor import SoftFloorForm
from libra_plan.profiles.schema import ModelShape, Software

__all__ = ["HOOK_S_PER_LAYER", "all_reduce_s", "data_parallel_ratio", "gradient_bytes"]

HOOK_S_PER_LAYER = 2.5e-3
"""Host seconds per layer that DistributedDataParallel adds to a launch-bound step: 2.42 ms (24
layers) and 2.57 ms (28 layers), measured on 2 H200."""
LINK_EFFICIENCY = 0.89
"""NCCL all-reduce against copy bandwidth between the same two GPUs: 326 of 366 GiB/s at 14 GiB."""
_LATENCY_S = 0.3e-3
_GIB = 2.0**30


def gradient_bytes(model: ModelShape, software: Software, layout: Layout) -> float:
    """Count the gradient bytes of one rank: 4 per parameter with fp32 masters, else 2."""
    width = 4.0 if software.precision.startswith("fp32") else 2.0
    if software.lora_rank is not None:
        # A and B beside each of about seven projections of a layer.
        return width * 2 * software.lora_rank * model.hidden * 7 * model.layers / (layout.tp * layout.pp)
    return width * model.params / (layout.tp * layout.pp)


def all_reduce_s(size_bytes: float, ranks: int, gib_per_s: float, *, passes: int = 2) -> float:
    """Give the seconds of a ring collective; `passes` is 2 for all-reduce, 3 for sharded states."""
    if ranks <= 1:
        return 0.0
    moved = passes * (ranks - 1) / ranks * size_bytes
    return _LATENCY_S + moved / (gib_per_s * LINK_EFFICIENCY * _GIB)


def data_parallel_ratio(
    form: SoftFloorForm,
    place: Place,
    communication_s: float,
    layers: int,
) -> float:
    """Give step time with data parallelism over step time without, at one place."""
    at = places_of([place])
    work = form.work(at)
    alone = form.over(work, 0.0)
    hooks = HOOK_S_PER_LAYER * layers if form.floor_s > 0 else 0.0
    together = form.over(work + communication_s, hooks)
    return float(together[0] / alone[0])
