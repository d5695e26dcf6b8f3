"""Find prices near the answer quickly, and a first choice with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from libra_plan.planner.optimize.colgen.anew import improve
from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.oracle import Oracle, Priced
from libra_plan.planner.optimize.colgen.relaxing import relax
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.rounding import complete
from libra_plan.planner.optimize.colgen.state import State

__all__ = ["start"]

_SAMPLE = 12  # tasks on which one price for all GPUs is looked for, and that the first plan is of
_ROUGH_GAP = 1e-4


def start(state: State, prices: Floats | None) -> None:
    """Price once near the answer and take a greedy choice; before that, a plain one within moments."""
    warm = prices is not None
    if prices is None:
        flat = _flat_prices(state)
        if not state.kept:
            _plain_choice(state, flat)
        prices = _rough_prices(state, flat)
    state.price(prices)
    if not state.over:
        state.better(complete(state.inner, state.pool, state.prices))
    if warm and not state.over:
        improve(state, 1, ask=True, known=True)


def _plain_choice(state: State, prices: Floats) -> None:
    """Choose among configurations that are cheap to find, so that there is a plan whenever somebody stops.

    The first plan is of a few tasks only, and each later one of twice as many.
    """
    sample = _sample(len(state.oracles)).tolist()
    order = [*sample, *sorted(set(range(len(state.oracles))) - set(sample))]
    shown = len(sample)
    for done, task in enumerate(order, 1):
        if state.late:
            return
        state.pool.add(task, state.oracles[task].plainly(prices))
        if done == shown or done == len(order):
            state.better(complete(state.inner, state.pool, prices))
            shown *= 2


def _sample(tasks: int) -> Ints:
    """Give the numbers of some tasks, evenly spread."""
    return np.linspace(0, tasks - 1, min(_SAMPLE, tasks)).round().astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Rough:
    """A task whose replicas may be split: cheap to price, with prices near those of the real one."""

    task: Oracle

    def price(self, prices: Floats, known: float, keep: int = 1, slack: float = 0.0) -> Priced:
        answer = self.task.roughly(prices)
        return answer if answer.bound > known + 1e-12 else Priced(max(known, answer.bound), ())


def _rough_prices(state: State, flat: Floats) -> Floats:
    """Solve the LP over configurations of split replicas; its prices are a round or two from the real ones."""
    rough = [_Rough(task) for task in state.oracles]
    caller = replace(state.caller, progress=None, lacking=None, worth=None)
    split = State(state.resources, rough, state.limits, caller, state.began)  # type: ignore[arg-type]
    split.price(flat)
    relax(split, _ROUGH_GAP)
    return split.prices


def _flat_prices(state: State) -> Floats:
    """Search one price for all GPUs at which the demand of a sample meets its share of the limits."""
    tasks = state.oracles
    sample = _sample(len(tasks))
    resources = state.resources.scaled(len(sample) / max(1, len(tasks)))
    low, high, found = 0.0, 0.25, False
    best = (np.inf, _priced(resources, high))
    for _ in range(9):
        middle = (low + high) / 2 if found else high
        prices = _priced(resources, middle)
        answers = [tasks[i].roughly(prices) for i in sample]
        bound = float(resources.limit @ prices) + sum(max(0.0, a.bound) for a in answers)
        demand = sum((a.configurations[0].demand for a in answers if a.configurations), np.zeros(len(prices)))
        best = min(best, (bound, prices), key=lambda each: each[0])
        if resources.fits(demand):
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
