"""When GPUs fail: drawn once for a world and a seed, whatever is done with them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from libra_plan.models.topology import GpuId
from libra_plan.planner.simulate.noisy_cost_model import world_cluster
from libra_plan.planner.simulate.work import stream
from libra_plan.planner.simulate.world import World

__all__ = ["failures_of"]


def failures_of(world: World, seed: int) -> Iterator[tuple[GpuId, float, float]]:
    """Give the GPUs that fail, the second they do, and the seconds until they are repaired."""
    failures, ends = world.failures, world.hours * 3600.0
    if failures is None:
        return
    rng = stream(seed, "failures")
    for gpu in world_cluster(world).gpus:
        at = float(rng.exponential(failures.mtbf_hours * 3600.0))
        while at < ends:
            repair = failures.repair_median_s * math.exp(rng.normal(0.0, failures.repair_sigma))
            yield gpu, at, repair
            at += repair + float(rng.exponential(failures.mtbf_hours * 3600.0))
