"""Rollout options whose replicas have several layouts, each serving a range of predicted lengths.

The time is the mean over rankings drawn with the predictor's error, not that of perfect ranks: with a
poor predictor such an option is slower than equal replicas, and then nobody chooses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.mixed_rollout import mixed_rollout
from libra_plan.models.parallelism import Layout, RangedReplica, layout_faults
from libra_plan.models.quantities import Estimate
from libra_plan.planner.pricing.layout_pricing import Frame, stretched
from libra_plan.planner.pricing.prices import Prices, Refusals
from libra_plan.planner.pricing.replicas import largest_node, mixed_budgets, widest_replica
from libra_plan.planner.pricing.rollout_stage import RangedKind, Rollout
from libra_plan.planner.pricing.work import TaskWork
from libra_plan.planner.problem import StageOption
from libra_plan.profiles.schema import RoleSpec

__all__ = ["mixed_options"]

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
    prices: Prices,
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
    prices: Prices,
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
