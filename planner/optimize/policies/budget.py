"""The budget: what a plan's GPUs cost an hour, and the row that keeps it within what may be spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil, floor, gcd, lcm

from libra_plan.errors import ClusterError
from libra_plan.models.topology import Cluster
from libra_plan.planner.optimize.constraints import Row
from libra_plan.planner.optimize.objective import TaskCandidates
from libra_plan.planner.plan import Configuration

__all__ = ["budget_row", "cost_per_hour"]

_FINEST = 1_000_000  # prices are read to a millionth
_LARGEST = 2**30  # a row's coefficients together: CP-SAT's sums stay well within 32 bits


def cost_per_hour(cluster: Cluster, configurations: Iterable[Configuration]) -> float | None:
    """Add up the price of all GPUs that configurations hold; None when one of their classes has no price."""
    prices = dict(cluster.price_per_gpu_hour)
    total = 0.0
    for configuration in configurations:
        for gpu_class, size, number in configuration.blocks:
            if gpu_class not in prices:
                return None
            total += prices[gpu_class] * size * number
    return total


def budget_row(tasks: Sequence[TaskCandidates], cluster: Cluster, budget_per_hour: float) -> Row:
    """Demand that the chosen configurations cost no more than the budget; never rounded in their favour.

    Costs are counted in the largest unit that divides every price, so sums are exact.
    """
    prices = _prices(cluster)
    units = [Fraction(price).limit_denominator(_FINEST) for price in prices.values()]
    denominator = lcm(*(unit.denominator for unit in units))
    divisor = gcd(*(int(unit * denominator) for unit in units)) or 1
    unit = Fraction(divisor, denominator)
    by_class = {name: Fraction(price).limit_denominator(_FINEST) / unit for name, price in prices.items()}
    costs = {
        (t, c): sum(by_class[name] * size * number for name, size, number in entry.configuration.blocks)
        for t, each in enumerate(tasks)
        for c, entry in enumerate(each.candidates)
    }
    limit = Fraction(budget_per_hour * (1 + 1e-12)) / unit
    shrink = max(1, ceil(sum(costs.values()) / _LARGEST))
    return Row(
        "budget",
        {at: float(ceil(cost / shrink)) for at, cost in costs.items() if cost},
        float(floor(limit / shrink)),
        "budget",
    )


def _prices(cluster: Cluster) -> dict[str, float]:
    prices = dict(cluster.price_per_gpu_hour)
    unknown = [name for name in cluster.gpu_classes if name not in prices]
    if unknown:
        raise ClusterError(
            "a budget needs the price of every GPU class",
            got=f"no price for {', '.join(unknown)}",
            allowed=f"price_per_gpu_hour: {{{unknown[0]}: 2.50}} in the cluster file",
            way_out="add the prices to cluster.yaml, or plan without --budget",
        )
    return prices
