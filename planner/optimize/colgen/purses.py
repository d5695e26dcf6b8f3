"""What a choice spends: rows that a unit links spend from one purse, every other row from its own."""

from __future__ import annotations

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats
from libra_plan.planner.optimize.colgen.resources import Resources

__all__ = ["purses"]

_FREE = 1e-4  # of the highest price of a purse: below it a limit binds nobody


def purses(resources: Resources, prices: Floats) -> Floats:
    """Give what a unit of each row costs out of each purse; the last purse has no limit.

    Purses come by falling price of all there is of them.
    """
    purse = np.arange(len(prices))
    for unit in resources.units:
        linked = np.flatnonzero(unit)
        purse[np.isin(purse, purse[linked])] = purse[linked[0]]
    numbers = [int(p) for p in np.unique(purse)]
    dear = [p for p in numbers if prices[purse == p].max() > _FREE * prices.max()]
    dear.sort(key=lambda p: -float((resources.limit * prices)[purse == p].sum()))
    weights = np.zeros((len(prices), len(dear) + 1))
    for at, row in enumerate(purse):
        weights[at, dear.index(int(row)) if row in dear else -1] = prices[at]
    return weights
