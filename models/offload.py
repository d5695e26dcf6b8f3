"""Training state or weights kept in pinned host memory: what leaves the GPU, and what the link pays.

A step with the optimizer there brings its states in and puts them back, layer by layer; weights come
in for every forward and every backward pass, and trained ones go back once a step. Buffers of two
layers stay on the GPU, one at work and one on its way. Bytes are those of `states.py`; what such a step
takes in truth was not measured, so every price made here is assumed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from libra_plan.errors import RefusedError
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.states import optimizer_mib, weights_mib
from libra_plan.models.training_stage import StageCost
from libra_plan.profiles.schema import MeasuredSpread, ProfileFile
from libra_plan.profiles.units import MIB_PER_GIB

__all__ = ["Offloaded", "measured_offload", "offloaded_cost", "offloaded_state"]

_BUFFERED_LAYERS = 2.0


@dataclass(frozen=True, slots=True)
class Offloaded:
    """MiB per GPU: gone from it, taken on the host, moved over the link a step and a micro-batch."""

    gpu_mib: float
    host_mib: float
    per_step_mib: float
    per_micro_batch_mib: float


def measured_offload(profile: ProfileFile) -> frozenset[str]:
    """Tell what was in host memory when a profile was measured: its flag `offload`, parts joined by +."""
    said = profile.software.flags.get("offload")
    return frozenset(said.split("+")) if isinstance(said, str) else frozenset()


def offloaded_state(profile: ProfileFile, layout: Layout, ranks: int, parts: Collection[str]) -> Offloaded:
    """Count what putting `parts` (optimizer, parameters) to host memory moves, over `ranks` replicas."""
    model, software, trains = profile.model, profile.software, profile.phase == "train"
    states = optimizer_mib(model, software, layout, ranks) if trains and "optimizer" in parts else 0.0
    weights = 0.0
    if "parameters" in parts:
        weights = weights_mib(model, software, layout) / (ranks if software.zero_stage == 3 else 1)
    written = weights if trains and software.lora_rank is None else 0.0
    gone = max(1.0 - _BUFFERED_LAYERS / model.layers, 0.0) * (states + weights)
    passes = 2 if trains else 1
    return Offloaded(gone, states + weights, 2 * states + written, passes * weights)


def offloaded_cost(cost: StageCost, state: Offloaded, link: MeasuredSpread | None, name: str) -> StageCost:
    """Take the state off the GPU, and let the step wait for the link; `low` hides all that it can."""
    if link is None:
        raise RefusedError(
            f"{name}: what moving state to pinned host memory takes is unknown",
            way_out="give pinned_host_gib_per_s in a switching.yaml of this GPU class",
        )
    gib = (state.per_step_mib + state.per_micro_batch_mib * cost.micro_batches) / MIB_PER_GIB
    time, memory = cost.time_s, cost.memory_mib
    value = max(memory.value - state.gpu_mib, 0.0)
    return replace(
        cost,
        time_s=Estimate(
            time.value + gib / link.typical,
            max(time.low, gib / link.high),
            time.high + gib / link.low,
            time.unit,
            Origin.ASSUMED,
            time.rows,
        ),
        memory_mib=Estimate(
            value,
            min(max(memory.low - state.gpu_mib, 0.0), value),
            max(memory.high - state.gpu_mib, value),
            memory.unit,
            Origin.ASSUMED,
            memory.rows,
        ),
    )
