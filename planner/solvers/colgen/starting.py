"""Find prices near the answer quickly, and a first choice with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from libra_plan.planner.solvers.colgen.arrays import Floats
from libra_plan.planner.solvers.colgen.pool import Pool
from libra_plan.planner.solvers.colgen.relaxing import relax
from libra_plan.planner.solvers.colgen.resources import Resources
from libra_plan.planner.solvers.colgen.rounding import complete
from libra_plan.planner.solvers.colgen.state import State

__all__ = ["start"]

_SMALL = 24  # tasks whose prices are found from nothing; more start from the prices of a sample
_SAMPLE_GAP = 3e-3  # prices of a sample are a guess, so they need be no better than this


def start(state: State, prices: Floats | None) -> None:
    """Price once near the answer and take a greedy choice."""
    if prices is None:
        prices = _flat_prices(state) if len(state.oracles) <= _SMALL else _sample_prices(state)
    state.price(prices)
    state.better(complete(state.inner, state.pool, prices))


def _sample_prices(state: State) -> Floats:
    """Find prices on a sample of the tasks with as small a share of everything.

    A choice for the sample is one for all tasks, so there is an incumbent at once.
    """
    tasks = len(state.oracles)
    sample = np.linspace(0, tasks - 1, max(12, tasks // 6)).round().astype(np.int64)
    smaller = State(
        state.resources.scaled(len(sample) / tasks),
        [state.oracles[i] for i in sample],
        state.limits,
        replace(state.caller, progress=None, lacking=None, worth=None),
        state.began,
    )

    def lift(pool: Pool, chosen: Sequence[int]) -> None:
        state.better([state.pool.copy(pool, i, int(sample[pool.task[i]])) for i in chosen])

    smaller.lift = lift
    start(smaller, None)
    relax(smaller, _SAMPLE_GAP)
    for number in range(len(smaller.pool)):
        state.pool.copy(smaller.pool, number, int(sample[smaller.pool.task[number]]))
    return smaller.prices


def _flat_prices(state: State) -> Floats:
    """Search one price for all GPUs at which demand meets the limits."""
    low, high, found = 0.0, 0.25, False
    best = (np.inf, _priced(state.resources, high))
    for _ in range(9):
        middle = (low + high) / 2 if found else high
        prices = _priced(state.resources, middle)
        answers = [oracle.price(prices, 0.0, 1) for oracle in state.oracles]
        for task, answer in enumerate(answers):
            state.pool.add(task, answer.columns)
        state.better(complete(state.inner, state.pool, prices))
        bound = float(state.resources.limit @ prices) + sum(max(0.0, a.bound) for a in answers)
        demand = sum((a.columns[0].demand for a in answers if a.columns), np.zeros(len(prices)))
        best = min(best, (bound, prices), key=lambda each: each[0])
        if state.resources.fits(demand):
            found, high = True, middle
        else:
            low, high = middle, high if found else 2 * high
        if state.late:
            break
    return best[1]


def _priced(resources: Resources, price: float) -> Floats:
    """Put one price on what units take, and as much on the first thing they give."""
    prices = np.zeros(len(resources.names))
    for unit in resources.units:
        takes, gives = np.flatnonzero(unit > 0), np.flatnonzero(unit < 0)
        prices[takes] = price
        if len(gives):
            prices[gives[0]] = price * float(unit[takes].sum()) / -unit[gives[0]]
    if not len(resources.units):
        prices[resources.limit > 0] = price
    return prices
