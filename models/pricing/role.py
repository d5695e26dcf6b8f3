"""Rollout options whose replicas have several layouts, each serving a range of predicted lengths.

The time is the mean over rankings drawn with the predictor's error, not that of perfect ranks: with a
poor predictor such an option is slower than equal replicas, and then nobody chooses it.

Price one role: an option for every GPU class, layout and replica count that can be answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.parallelism import Layout, RangedReplica, layout_faults
from libra_plan.models.pricing.layout import (
    Frame,
    PriceInputs,
    Refusals,
    RoleStage,
    largest_node,
    mixed_budgets,
    replica_counts,
    stretched,
    widest_replica,
)
from libra_plan.models.pricing.rollout_stage import RangedKind, Rollout
from libra_plan.models.pricing.stages import stage_of
from libra_plan.models.pricing.work import TaskWork
from libra_plan.models.quantities import Estimate
from libra_plan.models.rollout.mixed import mixed_rollout
from libra_plan.models.stage_option import Coupling, StageOption
from libra_plan.models.topology import whole_class
from libra_plan.profiles.schema import RoleSpec

__all__ = ["mixed_options", "price_role"]

_RANKINGS = 20
_RANKED = "replicas serve trajectories by the rank of their predicted length"


@dataclass(frozen=True)
class _Part:
    """One layout that replicas of the mix may have."""

    frame: Frame
    ranged: RangedKind


def mixed_options(
    role: RoleSpec,
    stage: Rollout,
    layouts: Sequence[Layout],
    gpu_class: str,
    work: TaskWork,
    prices: PriceInputs,
    refusals: Refusals,
) -> Iterator[StageOption]:
    """Price the best mix of layouts for every number of GPUs that is worth a price."""
    if role.mixed_layouts is None:
        return
    parts = list(_parts(role, stage, layouts, gpu_class, work, prices, refusals))
    of_class = sum(gpu.gpu_class == gpu_class for gpu in prices.cluster.gpus.values())
    most = of_class if role.max_gpus is None else min(of_class, role.max_gpus)
    node_gpus = largest_node(prices.cluster, gpu_class)
    for gpus in mixed_budgets(role.min_gpus, most, node_gpus) if parts else ():
        try:
            rng = np.random.default_rng(work.seed)  # the same rankings for every number of GPUs
            option = _option(stage, parts, gpus, role.mixed_layouts.ranking_error, rng)
        except RefusedError as refusal:
            refusals.add(f"{gpu_class} mixed layouts", refusal)
            continue
        if option.gpus >= role.min_gpus:
            yield option


def _parts(
    role: RoleSpec,
    stage: Rollout,
    layouts: Sequence[Layout],
    gpu_class: str,
    work: TaskWork,
    prices: PriceInputs,
    refusals: Refusals,
) -> Iterator[_Part]:
    """Prepare the layouts that may be mixed; what is wrong with one for any use is said elsewhere."""
    node_gpus = largest_node(prices.cluster, gpu_class)
    for layout in layouts:
        size = layout.gpus_per_replica
        straddles = size > node_gpus and (
            size % node_gpus or size > widest_replica(prices.cluster, gpu_class)
        )
        if straddles or layout_faults(layout, stage.profile.profile.model):
            continue
        try:
            frame = Frame(stage, layout, gpu_class, prices, work, role)
            ranged = stage.ranged(layout, frame.room_mib, prices.allow_prior)
            frame.peak_mib(ranged.memory_mib)
        except RefusedError as refusal:
            refusals.add(f"{gpu_class} {layout} in a mix", refusal)
            continue
        yield _Part(frame, ranged)


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
    mixed = [part for part in parts if part.frame.layout in used]
    value = max(found.expected_s, found.makespan_s.value)
    band = max(part.ranged.band for part in mixed)
    time_s = replace(
        found.makespan_s,
        value=value,
        low=found.makespan_s.value * max(1.0 - band, 0.0),
        high=max(value * (1.0 + band), found.makespan_s.high),
    )
    return _of_parts(mixed, found.replicas, stretched(time_s, mixed[0].frame.work.stretch))


def _of_parts(parts: Sequence[_Part], replicas: tuple[RangedReplica, ...], time_s: Estimate) -> StageOption:
    """Count every GPU at the most that one of any layout takes."""
    frames = [part.frame for part in parts]
    static, residual = max(each.static for each in frames), max(each.residual for each in frames)
    sleeps = [each.sleep for each in frames if each.sleep is not None]
    can_sleep = len(sleeps) == len(frames)
    notes = (note for part in parts for note in (*part.ranged.notes, *part.frame.notes))
    return StageOption(
        frames[0].gpu_class,
        max((each.layout for each in frames), key=lambda each: each.gpus_per_replica),
        len(replicas),
        time_s,
        max(static + residual, *(part.frame.peak_mib(part.ranged.memory_mib) for part in parts)),
        static + residual,
        residual,
        static,
        max(each.sleep_s for each in sleeps) if can_sleep else None,
        max(each.wake_s for each in sleeps) if can_sleep else None,
        (_RANKED, *dict.fromkeys(notes)),
        mix=replicas,
    )


def price_role(
    role: RoleSpec, work: TaskWork, coupling: Coupling, prices: PriceInputs, refusals: Refusals
) -> Iterator[StageOption]:
    """Price a GPU role; what cannot be priced goes to `refusals` and costs the others nothing."""
    for gpu_class in prices.cluster.gpu_classes:
        measured_on = whole_class(gpu_class)
        names = [n for n in role.profiles if prices.profiles[n].file.hardware.gpu_class == measured_on]
        if gpu_class != measured_on and not (role.shares_gpu and _may_share(gpu_class, prices, refusals)):
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
                if gpu_class == measured_on or layout.gpus_per_replica == 1:
                    yield from _layout_options(role, way, layout, gpu_class, work, prices, refusals)
            if role.mixed_layouts is not None and isinstance(way, Rollout) and not alone:
                of_class = layouts or list(stage.profile.layouts)
                yield from mixed_options(role, way, of_class, gpu_class, work, prices, refusals)


def _may_share(gpu_class: str, prices: PriceInputs, refusals: Refusals) -> bool:
    """Whether it was measured what two processes on one GPU of this class leave each other."""
    measured = prices.sharing(gpu_class)
    if not measured:
        refusals.add(gpu_class, "no switching.yaml says what two processes on one GPU leave each other")
    return bool(measured)


def _layout_options(
    role: RoleSpec,
    stage: RoleStage,
    layout: Layout,
    gpu_class: str,
    work: TaskWork,
    prices: PriceInputs,
    refusals: Refusals,
) -> Iterator[StageOption]:
    form = f"{gpu_class} {layout}"
    for fault in layout_faults(layout, stage.profile.profile.model):
        refusals.add(form, fault)
        return
    node_gpus = largest_node(prices.cluster, gpu_class)
    size = layout.gpus_per_replica
    if size > node_gpus and size % node_gpus:
        refusals.add(form, f"{size} GPUs per replica neither fit in a node of {node_gpus} nor fill nodes")
        return
    if size > widest_replica(prices.cluster, gpu_class):
        refusals.add(
            form, f"a replica of {size} GPUs needs {size // node_gpus} whole nodes of one NVLink domain"
        )
        return
    try:
        price = Frame(stage, layout, gpu_class, prices, work, role).pricer()
    except RefusedError as refusal:
        refusals.add(form, refusal)
        return
    of_class = sum(gpu.gpu_class == gpu_class for gpu in prices.cluster.gpus.values())
    most = of_class if role.max_gpus is None else min(of_class, role.max_gpus)
    most = min(most, 1) if gpu_class != whole_class(gpu_class) else most  # NCCL takes a GPU for one rank
    counts = replica_counts(size, role.min_gpus, most, work.samples, node_gpus, len(role.pinned_gpus))
    if not counts:
        refusals.add(form, f"no replica count fits {role.min_gpus} to {most} GPUs and {work.samples} samples")
    for replicas in counts:
        try:
            yield price(replicas)
        except RefusedError as refusal:
            refusals.add(form, refusal, replicas)
