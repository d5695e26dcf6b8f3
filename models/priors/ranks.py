"""Carry a training step and its memory to another number of data-parallel ranks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import log2
from statistics import median

from libra_plan.models import query as refusals
from libra_plan.models.costs.base import Places, places_of
from libra_plan.models.curves.answers import Asked, times_from
from libra_plan.models.curves.curve import Curve
from libra_plan.models.curves.layouts import LayoutFit
from libra_plan.models.memory.states import gradient_bytes, gradients_mib, state_mib, tables_of, weights_mib
from libra_plan.models.network import Link, ranks_s
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin, weakest
from libra_plan.profiles.hardware import gpu_class
from libra_plan.profiles.schema import ProfileFile
from libra_plan.profiles.units import MIB

__all__ = ["RANKS_BEYOND", "assumed_over_ranks", "memory_over_ranks", "ranks_note", "time_over_ranks"]

RANKS_BEYOND = "beyond the ranks measured"
"""How the note begins on a step over more data-parallel ranks than any that were measured."""

_GATHERED_LAYERS = 2.0
_ZERO_BUCKETS_BYTES = 2 * 5e8 * 2.0
"""`reduce_bucket_size` and `allgather_bucket_size` of DeepSpeed: 5e8 numbers each, in bf16."""
_ERROR = 1.05
"""Two-GPU steps predicted from one-GPU points stay within 5 %."""


def time_over_ranks(profile: ProfileFile, fit: LayoutFit, alone: Estimate, asked: Asked) -> Estimate:
    """Add what more ranks than measured cost; fewer ranks keep the measured time, as an upper bound.

    `asked` is one question. Steps measured at other numbers of ranks scale the prediction by what they
    took over it. More ranks than any measured ones are an extrapolation, whose error grows with every
    doubling.
    """
    query = asked.queries[0]
    if profile.phase != "train" or query.dp <= fit.base_dp or fit.time is None:
        return alone
    doublings = log2(query.dp / max(fit.base_dp, *(other.dp for other in fit.other_ranks), 1))
    seen, error = _seen(profile, fit, fit.time, asked)
    error **= max(1.0, doublings)
    ratio = _ratio(profile, fit, fit.time, asked, asked.places, query.dp) * seen
    value = alone.value * ratio
    # What is hidden behind the backward pass is not known: between all of it and nothing.
    low = min(alone.low * max(1.0, ratio / error), value)
    high = max(alone.high * ratio * error, value)
    carried = Origin.EXTRAPOLATED if doublings > 0 else Origin.INTERPOLATED
    return Estimate(value, low, high, "s", weakest(alone.origin, carried), alone.rows)


def ranks_note(measured: Collection[int], ranks: int) -> str | None:
    """Return a note where a step is on more ranks than were measured, with the doublings; else None."""
    most = max(measured)
    if ranks <= most:
        return None
    seen = "1 rank" if most == 1 else f"up to {most} ranks"
    doublings = f"{log2(ranks / most):.2g}"
    more = f"{doublings} doubling{'' if doublings == '1' else 's'} more"
    return f"{RANKS_BEYOND}: {ranks} data-parallel ranks, {seen} measured, {more}; bounds widen with each"


def assumed_over_ranks(profile: ProfileFile, alone: Estimate, asked: Asked) -> Estimate:
    """Add the exchange of gradients to a step that was assumed, none of it hidden but for the low bound."""
    ranks = asked.queries[0].dp
    if profile.phase != "train" or ranks == 1:
        return alone
    more = _collective_s(profile, asked, ranks)
    high = alone.high + more * _ERROR
    return replace(alone, value=alone.value + more, high=high, origin=Origin.ASSUMED)


def _ratio(profile: ProfileFile, fit: LayoutFit, curve: Curve, asked: Asked, at: Places, ranks: int) -> float:
    """Return step time on `ranks` data-parallel ranks over that on the ranks of the curve, at one place."""
    more = _collective_s(profile, asked, ranks) - _collective_s(profile, asked, fit.base_dp)
    hook_s = gpu_class(profile.hardware.gpu_class).links.hook_s_per_layer if fit.base_dp == 1 else 0.0
    return float(curve.form.slowed(at, max(more, 0.0), hook_s * profile.model.layers)[0])


def _seen(profile: ProfileFile, fit: LayoutFit, curve: Curve, asked: Asked) -> tuple[float, float]:
    """Return the median of measured over predicted at other numbers of ranks, and the error around it.

    Predicted is what is answered there without them, so that how far the curve of one rank is off, which
    its own bounds hold, does not count a second time as an error of ranks.
    """
    own_link = None if profile.hardware.intra_node_gib_per_s else asked.queries[0].link_gib_per_s
    query = replace(asked.queries[0], link_gib_per_s=own_link)
    others = [other for other in fit.other_ranks if other.dp > fit.base_dp]
    found = []
    if others:
        places = places_of([other.sample.place for other in others])
        near = curve.reach(places).octaves <= 1
        there = replace(asked, queries=[query] * len(others), places=places)
        for row, (other, alone) in enumerate(zip(others, times_from(curve, there), strict=True)):
            if near[row] and isinstance(alone, Estimate):
                ratio = _ratio(profile, fit, curve, there.only([row]), places[row : row + 1], other.dp)
                found.append(other.sample.value / (alone.value * ratio))
    if not found:
        return 1.0, _ERROR
    middle = median(found)
    return middle, max(_ERROR, *(max(each / middle, middle / each) for each in found))


def _collective_s(profile: ProfileFile, asked: Asked, ranks: int) -> float:
    if ranks == 1:
        return 0.0
    hardware, query = profile.hardware, asked.queries[0]
    gpus = ranks * query.layout.gpus_per_replica
    within = hardware.gpus_per_node is None or gpus <= hardware.gpus_per_node
    measured_link = hardware.intra_node_gib_per_s if within else hardware.inter_node_gib_per_s
    link = query.link_gib_per_s or measured_link
    if link is None:
        raise refusals.unknown_link(asked.name, query, within_node=within)
    link_used = Link(link, not within, hardware.gpu_class)
    return ranks_s(profile.model, profile.software, query.layout, ranks, link_used)


def memory_over_ranks(
    profile: ProfileFile, layout: Layout, base_dp: int, ranks: int, estimate: Estimate
) -> Estimate:
    """Move a peak (MiB per GPU) seen on `base_dp` ranks to another number of them.

    Sharded states shrink or grow; the bound takes no gradients off, since a peak of the loss had none.
    What ranks need for their exchange is there only from two on (`_exchanged_mib`).
    """
    if profile.phase != "train" or ranks == base_dp:
        return estimate
    model, software = profile.model, profile.software
    shift = state_mib(model, software, layout, ranks) - state_mib(model, software, layout, base_dp)
    fewer = min(
        gradients_mib(model, software, layout, ranks) - gradients_mib(model, software, layout, base_dp), 0.0
    )
    more = _exchanged_mib(profile, layout) if base_dp == 1 else 0.0
    least = weights_mib(model, software, layout) / (ranks if software.zero_stage == 3 else 1)
    value = max(estimate.value + shift + more, least)
    low = max(min(estimate.low + shift, value), 0.0)
    high = max(estimate.high + shift - fewer + more, value)
    origin = weakest(estimate.origin, Origin.EXTRAPOLATED)
    return Estimate(value, low, high, "MiB", origin, estimate.rows)


def _exchanged_mib(profile: ProfileFile, layout: Layout) -> float:
    """Count what ranks hold for their exchange, MiB per GPU, and one alone does not.

    Replicated ones (ZeRO-0): PyTorch lays the gradients' buckets out anew after the first step, while
    the first ones still stand, and what that peak took stays reserved: on two H200 1.5B took 3.4 and
    5.9 GiB more than on one, of 5.8 of gradients (`docs/measurements/two_tasks_h200.md`). Without
    `gradient_as_bucket_view` both stay. ZeRO-1 and 2: two buckets as DeepSpeed makes them. ZeRO-3 and
    FSDP: whole weights of the layer at work, of the next one and of the tables of words. Only the
    first of these was measured.
    """
    model, software = profile.model, profile.software
    if software.zero_stage == 3:
        tables = tables_of(model) * model.vocab * model.hidden / model.params
        layers = min(_GATHERED_LAYERS / model.layers, 1.0)
        return weights_mib(model, software, layout) * (tables + (1.0 - tables) * layers)
    gradients = gradient_bytes(model, software, layout)
    return (gradients if software.zero_stage == 0 else min(gradients, _ZERO_BUCKETS_BYTES)) / MIB
