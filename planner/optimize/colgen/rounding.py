"""Integer choices without a solver: greedy by prices, completion and exchange."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats
from libra_plan.planner.optimize.colgen.pool import Pool
from libra_plan.planner.optimize.colgen.resources import Resources

__all__ = ["complete", "round_lp"]


def complete(resources: Resources, pool: Pool, prices: Floats, start: Sequence[int] = ()) -> tuple[int, ...]:
    """Give each task without one the best configuration by reduced value that still fits.

    Configurations are tried by falling reduced value per unit of demand at these prices.
    """
    chosen = list(start)
    taken = {int(pool.task[i]) for i in chosen}
    demand = pool.demand[np.asarray(chosen, dtype=np.int64)].sum(axis=0) if chosen else np.zeros(len(prices))
    cost = pool.demand @ prices
    rank = (pool.value - cost) / np.maximum(cost, 1e-9)
    by_task: dict[int, list[int]] = {}
    for i in np.argsort(-(pool.value - cost), kind="stable"):
        by_task.setdefault(int(pool.task[i]), []).append(int(i))
    order = sorted(by_task, key=lambda t: -float(rank[by_task[t][0]]))
    for task in order:
        if task in taken:
            continue
        own = np.asarray(by_task[task][:64])
        rough = (pool.demand[own] <= resources.limit - demand + 1e-9) | (resources.limit == 0.0)
        for i in own[rough.all(axis=1)]:
            if resources.fits(demand + pool.demand[i]):
                chosen.append(int(i))
                demand = demand + pool.demand[i]
                break
    return tuple(chosen)


def round_lp(resources: Resources, pool: Pool, fractions: Floats, prices: Floats) -> tuple[int, ...]:
    """Keep the LP's whole configurations, then its larger fractions while they fit, then complete."""
    chosen: list[int] = []
    taken: set[int] = set()
    demand = np.zeros(len(prices))
    for i in np.argsort(-fractions, kind="stable"):
        if fractions[i] < 0.05:
            break
        task = int(pool.task[i])
        if task not in taken and resources.fits(demand + pool.demand[i]):
            chosen.append(int(i))
            taken.add(task)
            demand = demand + pool.demand[i]
    return complete(resources, pool, prices, chosen)
