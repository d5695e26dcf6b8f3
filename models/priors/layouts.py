"""Predict the cost of a layout that was not measured; only used where a user allows priors.

Speed-up for each doubling of the GPUs, never 2:

- tensor parallel: time per token on published H100 and H200 serving rows, dense 1→2 1.5-1.7,
  2→4 1.3-1.6, 4→8 1.1-1.4; mixture of experts 1.1-1.6. Where the link is known, its all-reduces are a
  floor: across nodes they are most of a step.
- context parallel: torchtitan's published Llama 3.1 8B and 405B sweeps on H100 (32k to 262k tokens),
  against the operations of their tokens: 1.4-1.9, 2.2-2.6 and 3.4-4.7 times on 2, 4 and 8 ranks. What
  ring attention passes on is a floor.
- pipeline parallel: none for one micro-batch; the stage adds the bubble (p − 1)/(m + p − 1).
- expert parallel: none; the all-to-all comes on top.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.memory.states import kv_mib_per_token, standing_mib
from libra_plan.models.network import Link, all_to_all_s, ring_exchange_s, stage_sends_s, tensor_reduce_s
from libra_plan.models.parallelism import Layout, layout_faults
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.schema import ProfileFile

__all__ = [
    "MEMORY_MARGIN",
    "Speedup",
    "can_carry",
    "carried_coefficients",
    "carried_memory",
    "carried_time",
    "layout_speedup",
    "penalty_words",
    "tensor_speedup",
]

MEMORY_MARGIN = 1.25
"""Factor on memory at a layout that was not measured: communication buffers, unevenly split layers."""
_DENSE = ((1.5, 1.6, 1.7), (1.3, 1.45, 1.6), (1.1, 1.25, 1.4))
_EXPERTS = (1.1, 1.35, 1.6)
_BEYOND = (1.0, 1.1, 1.25)
_CONTEXT = (1.4, 1.6, 1.85)


class Speedup(NamedTuple):
    """How many times faster: at least, likely, at most."""

    least: float
    likely: float
    greatest: float

    def times(self, other: Speedup) -> Speedup:
        """Multiply two independent speed-ups."""
        return Speedup(self.least * other.least, self.likely * other.likely, self.greatest * other.greatest)


_NONE = Speedup(1.0, 1.0, 1.0)


def tensor_speedup(measured_tp: int, asked_tp: int, *, experts: bool) -> Speedup:
    """Return the speed of `asked_tp` over `measured_tp`, both powers of two."""
    steps = [_EXPERTS] * 64 if experts else [*_DENSE, *[_BEYOND] * 64]
    return _over_doublings(measured_tp, asked_tp, steps)


def _over_doublings(measured: int, asked: int, steps: list[tuple[float, float, float]]) -> Speedup:
    first, last = sorted((round(math.log2(measured)), round(math.log2(asked))))
    gain = _NONE
    for doubling in range(first, last):
        gain = gain.times(Speedup(*steps[doubling]))
    if asked < measured:
        return Speedup(1 / gain.greatest, 1 / gain.likely, 1 / gain.least)
    return gain


def can_carry(source: Layout, asked: Layout, profile: ProfileFile) -> bool:
    """Whether a layout may be predicted from another: tp and cp by doublings, pp and ep by tables.

    Generation has no context-parallel table, and the model must be one that can be split so.
    """
    if source == asked or (profile.phase in ("decode", "serve") and source.cp != asked.cp):
        return False
    if layout_faults(asked, profile.model):
        return False
    return all(degree & (degree - 1) == 0 for degree in (source.tp, asked.tp, source.cp, asked.cp))


def layout_speedup(source: Layout, asked: Layout, *, experts: bool) -> Speedup:
    """Return the speed of one step of one micro-batch in `asked` over the same in `source`."""
    tensor = tensor_speedup(source.tp, asked.tp, experts=experts)
    return tensor.times(_over_doublings(source.cp, asked.cp, [_CONTEXT] * 64))


def penalty_words(source: Layout, asked: Layout, *, experts: bool) -> str:
    """Return a note for the plan on the assumed cost of an unmeasured layout."""
    speed = layout_speedup(source, asked, experts=experts)
    ratio = asked.gpus_per_replica / source.gpus_per_replica
    span = f"{speed.least:.2f} to {speed.greatest:.2f}"
    parts = [f"{speed.likely:.2f} times the speed ({span}) on {ratio:g} times the GPUs"]
    if asked.tp > source.tp:
        parts.append("no faster than its all-reduces")
    if asked.cp > source.cp:
        parts.append("no faster than ring attention passes keys and values on")
    if asked.pp != source.pp:
        parts.append("pipeline bubble added")
    if asked.ep != source.ep:
        parts.append("all-to-all between experts added")
    return f"{asked} was not measured; assumed from {source}: {', '.join(parts)}"


def carried_time(
    base: Estimate, profile: ProfileFile, source: Layout, asked: Layout, tokens: float
) -> Estimate:
    """Carry the seconds of a step over to a layout that was not measured.

    `tokens` pass through the replica in the step. Context, expert and pipeline parallelism need the
    bandwidth inside a replica, from the profile's hardware.
    """
    speed = layout_speedup(source, asked, experts=profile.model.experts is not None)
    more = _traffic_s(profile, asked, tokens) - _traffic_s(profile, source, tokens)
    floor = _floor_s(profile, source, asked, tokens)
    low = max(base.low / speed.greatest + more, floor, 0.0)
    value = max(base.value / speed.likely + more, low)
    high = max(base.high / speed.least + more + floor, value)
    return Estimate(value, low, high, base.unit, Origin.ASSUMED, base.rows)


def carried_coefficients(
    base: DecodeCoefficients, source: Layout, asked: Layout, *, experts: bool
) -> DecodeCoefficients:
    """Carry an affine decode step over to a layout that was not measured."""
    speed = layout_speedup(source, asked, experts=experts)
    return base.scaled(1 / speed.likely, (1 + base.error) * speed.likely / speed.least - 1)


def _floor_s(profile: ProfileFile, source: Layout, asked: Layout, tokens: float) -> float:
    """Return the least seconds of ring attention and of the all-reduces of wider tensor parallelism."""
    model, software, phase = profile.model, profile.software, profile.phase
    floor = 0.0
    if asked.cp > source.cp:
        floor += ring_exchange_s(model, software, phase, asked, tokens, _inside(profile, asked))
    if asked.tp > source.tp:  # the published speed-ups have it in them, so an unknown link is no obstacle
        try:
            link = _inside(profile, asked)
        except RefusedError:
            return floor
        floor += tensor_reduce_s(model, software, phase, asked, tokens, link)
    return floor


def _inside(profile: ProfileFile, layout: Layout) -> Link:
    """Return the link between a replica's GPUs; never a guess."""
    hardware = profile.hardware
    across = hardware.gpus_per_node is not None and layout.gpus_per_replica > hardware.gpus_per_node
    link = hardware.inter_node_gib_per_s if across else hardware.intra_node_gib_per_s
    if link is None:
        key = f"{'inter' if across else 'intra'}_node_gib_per_s"
        raise RefusedError(
            f"{profile.id}: the bandwidth inside a replica is unknown",
            got=str(layout),
            allowed="a measured layout, or a known bandwidth",
            way_out=f"state {key} in the profile's hardware",
        )
    return Link(link, across, hardware.gpu_class)


def _traffic_s(profile: ProfileFile, layout: Layout, tokens: float) -> float:
    """Return the expert and pipeline traffic of one step."""
    if layout.pp == 1 and layout.ep == 1:
        return 0.0
    link = _inside(profile, layout)
    model = profile.model
    seconds = stage_sends_s(model, profile.phase, layout, tokens, link)
    if layout.ep > 1:
        visited = model.experts_per_token
        if visited is None:
            raise RefusedError(
                f"{profile.id}: how many experts a token visits is unknown",
                got=str(layout),
                way_out="state experts_per_token of the model in the profile",
            )
        seconds += all_to_all_s(model, profile.software, profile.phase, layout, tokens, visited, link)
    return seconds


def carried_memory(
    base: Estimate, profile: ProfileFile, source: Layout, asked: Layout, ranks: int
) -> Estimate:
    """Carry peak memory over: states split by tp·pp, activations by tp·cp, a KV cache by its heads and pp.

    KV heads fewer than tensor-parallel ranks are copied, so beyond them a cache is not split. The
    first pipeline stage holds as many micro-batches as there are stages, so activations are not split
    by pp. `base` is of `ranks` data-parallel ranks already.
    """
    before, after = (standing_mib(profile, layout, ranks) for layout in (source, asked))
    if profile.phase in ("decode", "serve"):
        own, other = (kv_mib_per_token(profile.model, profile.software, layout) for layout in (asked, source))
        share = own / other
    else:
        share = source.tp * source.cp / (asked.tp * asked.cp)

    def moved(mib: float) -> float:
        return min(mib, before) * after / before + max(mib - before, 0.0) * share

    return Estimate(
        moved(base.value),
        moved(base.low),
        moved(base.high) * MEMORY_MARGIN,
        "MiB",
        Origin.ASSUMED,
        base.rows,
    )
