"""Price one role: an option for every GPU class, layout and replica count that can be answered.

A rollout may also have replicas of several layouts, each serving a range of predicted lengths. Its time is
the mean over rankings drawn with the predictor's error, not that of perfect ranks: with a poor predictor such
an option is slower than equal replicas and is not chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.parallelism import Layout, RangedReplica, layout_faults
from libra_plan.models.pricing.layout import (
    LayoutPricing,
    PriceInputs,
    Refusals,
    RoleOnClass,
    RoleStage,
    mixed_budgets,
    replica_counts,
    stretched,
)
from libra_plan.models.pricing.rollout_stage import RangedKind, Rollout
from libra_plan.models.pricing.stages import stage_of
from libra_plan.models.pricing.work import TaskWork
from libra_plan.models.quantities import Estimate
from libra_plan.models.rollout.mixed import mixed_rollout
from libra_plan.models.stage_option import Coupling, StageOption
from libra_plan.profiles.schema import RoleSpec

__all__ = ["price_role"]

_RANKINGS = 20
_RANKED = "replicas serve trajectories by the rank of their predicted length"


@dataclass(frozen=True)
class _Part:
    """One layout that replicas of the mix may have."""

    pricing: LayoutPricing
    ranged: RangedKind


def price_role(
    role: RoleSpec, work: TaskWork, coupling: Coupling, prices: PriceInputs, refusals: Refusals
) -> Iterator[StageOption]:
    """Price a GPU role; what cannot be priced goes to `refusals` and costs the others nothing."""
    for gpu_class in prices.cluster.gpu_classes:
        on = RoleOnClass(role, work, gpu_class, prices, refusals)
        names = [n for n in role.profiles if prices.profiles[n].file.hardware.gpu_class == on.measured_on]
        if on.is_seat and not (role.shares_gpu and _may_share(on)):
            continue
        if not names:
            measured = sorted({prices.profiles[name].file.hardware.gpu_class for name in role.profiles})
            refusals.add(gpu_class, f"the role's profiles were measured on {', '.join(measured)}, not on it")
            continue
        try:
            stage = stage_of(role, names, work, coupling, prices)
        except RefusedError as refusal:
            refusals.add(gpu_class, refusal)
            continue
        layouts = [Layout.of(each) for each in role.layouts]
        for way, alone in stage.ways():
            for layout in layouts or stage.profile.layouts or (Layout(),):
                if not on.is_seat or layout.gpus_per_replica == 1:
                    yield from _layout_options(on, way, layout)
            if role.mixed_layouts is not None and isinstance(way, Rollout) and not alone:
                error = role.mixed_layouts.ranking_error
                yield from _mixed_options(on, way, layouts or list(stage.profile.layouts), error)


def _may_share(on: RoleOnClass) -> bool:
    """Whether the shares of two processes on one GPU of this class were measured."""
    measured = on.prices.sharing(on.gpu_class)
    if not measured:
        said = "no switching.yaml says what two processes on one GPU leave each other"
        on.refusals.add(on.gpu_class, said)
    return bool(measured)


def _layout_options(on: RoleOnClass, stage: RoleStage, layout: Layout) -> Iterator[StageOption]:
    form = f"{on.gpu_class} {layout}"
    fault = _misfit(on, stage, layout)
    if fault is not None:
        on.refusals.add(form, fault)
        return
    try:
        price = LayoutPricing(stage, layout, on).pricer()
    except RefusedError as refusal:
        on.refusals.add(form, refusal)
        return
    least, samples, pinned = on.role.min_gpus, on.work.samples, len(on.role.pinned_gpus)
    most = min(on.most_gpus, 1) if on.is_seat else on.most_gpus  # NCCL takes a GPU for one rank
    counts = replica_counts(layout.gpus_per_replica, least, most, samples, on.node_gpus, pinned)
    if not counts:
        on.refusals.add(form, f"no replica count fits {least} to {most} GPUs and {samples} samples")
    for replicas in counts:
        try:
            yield price(replicas)
        except RefusedError as refusal:
            on.refusals.add(form, refusal, replicas)


def _misfit(on: RoleOnClass, stage: RoleStage, layout: Layout) -> str | None:
    """Return why a layout does not fit the model or the nodes; None where it does."""
    size, node_gpus = layout.gpus_per_replica, on.node_gpus
    faults = layout_faults(layout, stage.profile.profile.model)
    if faults:
        return faults[0]
    if size > node_gpus and size % node_gpus:
        return f"{size} GPUs per replica neither fit in a node of {node_gpus} nor fill nodes"
    if size > on.widest_replica:
        return f"a replica of {size} GPUs needs {size // node_gpus} whole nodes of one NVLink domain"
    return None


def _mixed_options(
    on: RoleOnClass, stage: Rollout, layouts: Sequence[Layout], ranking_error: float
) -> Iterator[StageOption]:
    """Price the best mix of layouts for every number of GPUs that is worth a price."""
    parts = list(_parts(on, stage, layouts))
    for gpus in mixed_budgets(on.role.min_gpus, on.most_gpus, on.node_gpus) if parts else ():
        try:
            rng = np.random.default_rng(on.work.seed)  # the same rankings for every number of GPUs
            option = _option(stage, parts, gpus, ranking_error, rng)
        except RefusedError as refusal:
            on.refusals.add(f"{on.gpu_class} mixed layouts", refusal)
            continue
        if option.gpus >= on.role.min_gpus:
            yield option


def _parts(on: RoleOnClass, stage: Rollout, layouts: Sequence[Layout]) -> Iterator[_Part]:
    """Prepare the layouts that may be mixed; what is wrong with one for any use is refused elsewhere."""
    for layout in layouts:
        if _misfit(on, stage, layout) is not None:
            continue
        try:
            pricing = LayoutPricing(stage, layout, on)
            ranged = stage.ranged(layout, pricing.room_mib, on.prices.allow_prior)
            pricing.peak_mib(ranged.memory_mib)
        except RefusedError as refusal:
            on.refusals.add(f"{on.gpu_class} {layout} in a mix", refusal)
            continue
        yield _Part(pricing, ranged)


def _option(
    stage: Rollout, parts: Sequence[_Part], gpus: int, ranking_error: float, rng: np.random.Generator
) -> StageOption:
    """Price the best mix on so many GPUs, at the mean over drawn rankings."""
    found = mixed_rollout(
        stage.orders[0],
        [part.ranged.kind for part in parts],
        gpus,
        ranking_error=ranking_error,
        rng=rng,
        rankings=_RANKINGS,
    )
    used = {replica.layout for replica in found.replicas}
    mixed = [part for part in parts if part.pricing.layout in used]
    value = max(found.expected_s, found.makespan_s.value)
    band = max(part.ranged.band for part in mixed)
    time_s = replace(
        found.makespan_s,
        value=value,
        low=found.makespan_s.value * max(1.0 - band, 0.0),
        high=max(value * (1.0 + band), found.makespan_s.high),
    )
    return _of_parts(mixed, found.replicas, stretched(time_s, mixed[0].pricing.on.work.stretch))


def _of_parts(parts: Sequence[_Part], replicas: tuple[RangedReplica, ...], time_s: Estimate) -> StageOption:
    """Count every GPU at the most that one of any layout takes."""
    pricings = [part.pricing for part in parts]
    static, residual = max(each.static for each in pricings), max(each.residual for each in pricings)
    sleeps = [each.sleep for each in pricings if each.sleep is not None]
    can_sleep = len(sleeps) == len(pricings)
    notes = (note for part in parts for note in (*part.ranged.notes, *part.pricing.notes))
    return StageOption(
        pricings[0].on.gpu_class,
        max((each.layout for each in pricings), key=lambda each: each.gpus_per_replica),
        len(replicas),
        time_s,
        max(static + residual, *(part.pricing.peak_mib(part.ranged.memory_mib) for part in parts)),
        static + residual,
        residual,
        static,
        max(each.sleep_s for each in sleeps) if can_sleep else None,
        max(each.wake_s for each in sleeps) if can_sleep else None,
        (_RANKED, *dict.fromkeys(notes)),
        mix=replicas,
    )
