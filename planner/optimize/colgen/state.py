"""What a solve knows: configurations, the best choice so far, the bound, and the prices that prove it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats
from libra_plan.planner.optimize.colgen.lp_master import LpMaster
from libra_plan.planner.optimize.colgen.oracle import Found, Oracle
from libra_plan.planner.optimize.colgen.pool import Pool
from libra_plan.planner.optimize.colgen.resources import Resources

__all__ = ["Answer", "Caller", "Chosen", "Lacking", "Limits", "Progress", "State", "Worth", "relative"]

_LITTLE = 1e-12
_SAFETY = 1e-9  # relative: the sums of a bound are true to about this

Progress = Callable[[float, float, float, float], None]
"""Called with objective, bound, relative gap and seconds since the start."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop, and how much to look at.

    `gap`: the relative gap wanted. `kept_gap`: the one at which a running choice stays, though a
    better one within it may exist. `near`: configurations per task that a choice is first made from.
    `every_limit`: partial configurations of one task beyond which a complete search gives up.
    """

    time_limit_s: float = 60.0
    gap: float = 1e-4
    kept_gap: float = 0.0
    near: int = 30
    every_limit: int = 2_000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The configuration a task runs in: value, demand, and the oracle's handle to describe it."""

    task: int
    value: float
    demand: Floats
    handle: object


Lacking = Callable[[Sequence[Chosen]], "Floats | None"]
"""Checks a choice for what rows cannot say: None, or the further demand to reckon with."""

Worth = Callable[[Sequence[Chosen]], float]
"""Says what a choice is worth once placed: no more than its configurations are, when moves come on top."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The choice, its value, what no choice can exceed, and the row prices that prove it."""

    chosen: tuple[Chosen, ...]
    objective: float
    bound: float
    prices: Floats
    priced: float
    """What no choice can exceed at these prices; `bound` may be lower, by a complete search."""
    configurations: int
    rounds: int

    @property
    def gap(self) -> float:
        """Give the relative gap."""
        return relative(self.bound - self.objective, self.objective)

    @property
    def priced_gap(self) -> float:
        """Give the relative gap that one round at the prices proves again."""
        return relative(self.priced - self.objective, self.objective)


def relative(difference: float, objective: float) -> float:
    """Give a difference of objectives as a part of one."""
    return difference / max(abs(objective), 1e-9)


@dataclass(frozen=True, slots=True)
class Caller:
    """What the caller of a solve brings along."""

    clock: Callable[[], float]
    stop: Callable[[], bool] = lambda: False
    progress: Progress | None = None
    lacking: Lacking | None = None
    worth: Worth | None = None


@dataclass
class State:
    """One solve. `inner` is what choices are made with: resources, less what was found lacking."""

    resources: Resources
    oracles: Sequence[Oracle]
    limits: Limits
    caller: Caller
    began: float
    rounds: int = 0
    chosen: tuple[int, ...] = ()
    objective: float = 0.0
    proven: float = np.inf
    priced: float = np.inf
    """The bound that `prices` and `reduced` prove, which losses are measured against."""
    window: float = 0.0
    kept: tuple[int, ...] = ()
    """The running choice, and what it is worth."""
    kept_worth: float = 0.0
    looked_at: int = 1
    """Times `every_limit` that a complete search may look at now."""
    placed: set[tuple[int, ...]] = field(default_factory=set)
    """Choices that were placed, whatever they were worth then."""
    prices: Floats = field(init=False)
    reduced: Floats = field(init=False)
    pool: Pool = field(init=False)
    master: LpMaster = field(init=False)
    inner: Resources = field(init=False)
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        rows = len(self.resources.names)
        self.pool, self.master = Pool(rows), LpMaster(self.resources, len(self.oracles))
        self.prices, self.reduced = np.zeros(rows), np.zeros(len(self.oracles))
        self.inner, self.rng = self.resources, np.random.default_rng(self.limits.seed)

    @property
    def bound(self) -> float:
        """Give what no plan exceeds."""
        return max(self.objective, self.proven)

    @property
    def gap(self) -> float:
        """Give the relative gap; infinite while there is no bound."""
        return relative(self.bound - self.objective, self.objective)

    @property
    def keeps(self) -> bool:
        """Tell whether the running choice is near enough to the bound to stay."""
        near = max(self.limits.gap, self.limits.kept_gap)
        return bool(self.kept) and relative(self.proven - self.kept_worth, self.kept_worth) <= near

    @property
    def spent_s(self) -> float:
        """Give the seconds since the start."""
        return self.caller.clock() - self.began

    @property
    def left_s(self) -> float:
        """Give the seconds left, never below what a solver needs to look at its start."""
        return max(0.02, self.limits.time_limit_s - self.spent_s)

    @property
    def late(self) -> bool:
        """Tell whether to stop at once."""
        return self.caller.stop() or self.spent_s >= self.limits.time_limit_s

    @property
    def over(self) -> bool:
        """Tell whether there is nothing left to do."""
        return self.late or self.gap <= self.limits.gap or self.keeps

    def price(self, prices: Floats, slack: float = 0.0) -> int:
        """Ask every task for its best configurations at these prices; count those that are new.

        The answers bound every plan: limits at these prices, and each task's highest reduced value.
        All together may be `slack` above what is best.
        """
        self.rounds += 1
        new = 0
        reduced = self.pool.best_reduced(prices, len(self.oracles))
        for task, oracle in enumerate(self.oracles):
            if self.late:
                return 0
            answer = oracle.price(prices, float(reduced[task]), slack=slack / len(self.oracles))
            reduced[task] = max(0.0, answer.bound)
            new += self.pool.add(task, answer.configurations)
        total = float(self.resources.limit @ prices) + float(reduced.sum())
        # The LP's prices let no unit gain; rounding may, for as many units as there is room for.
        total += float(np.maximum(-self.resources.units @ prices, 0.0) @ self.resources.most_units())
        total += _SAFETY * max(1.0, abs(total))
        if total < self.proven:
            self.proven = self.priced = total
            self.prices, self.reduced = prices, reduced
            self.report()
        return new

    def prove(self, bound: float) -> None:
        """Take a bound that a complete search has proven, true to what its sums are."""
        bound += _SAFETY * max(1.0, abs(bound))
        if bound < self.proven:
            self.proven = bound
            self.report()

    def losses(self) -> Floats:
        """Give what each configuration of the pool loses against its task's best at the prices."""
        return self.reduced[self.pool.task] - (self.pool.value - self.pool.demand @ self.prices)

    def better(self, chosen: Sequence[int]) -> None:
        """Take a choice if it is the best so far and nothing is lacking.

        What is lacking is reckoned with until a better choice shows that it need not be.
        """
        value = float(self.pool.value[np.asarray(chosen, dtype=np.int64)].sum())
        least = self.objective + _LITTLE * abs(self.objective)  # the same choice, added up in another order
        if value <= least:
            return
        if self.caller.lacking is not None:
            more = self.caller.lacking([self.configuration(i) for i in chosen])
            if more is not None:
                known = self.resources.limit - self.inner.limit
                self.inner = self.resources.beside(np.maximum(more, known))
                return
        if self.caller.worth is not None:
            key = tuple(sorted(chosen))
            if key in self.placed:
                return
            self.placed.add(key)
            value = self.caller.worth([self.configuration(i) for i in chosen])
            if value <= least:
                return
        assert value <= self.proven + 1e-6 * abs(self.proven), "a plan beats its bound: an oracle is wrong"
        self.chosen, self.objective = tuple(chosen), value
        self.inner = self.resources
        self.report()

    def begin(self, start: Sequence[tuple[int, Found]]) -> None:
        """Take a choice that fits as the first incumbent."""
        if start:
            self.better([self.pool.number_of(task, configuration) for task, configuration in start])

    def keep(self, running: Sequence[tuple[int, Found]]) -> None:
        """Take the running choice as the first incumbent; it stays when the bound comes near it."""
        self.begin(running)
        self.kept, self.kept_worth = self.chosen, self.objective

    def report(self) -> None:
        """Tell whoever looks on; before the first choice there is nothing to tell."""
        if self.caller.progress is not None and self.objective > 0:
            self.caller.progress(self.objective, self.bound, self.gap, self.spent_s)

    def configuration(self, number: int) -> Chosen:
        """Describe a configuration of the pool."""
        pool = self.pool
        demand = pool.demand[number].copy()
        return Chosen(int(pool.task[number]), float(pool.value[number]), demand, pool.handle(number))

    def answer(self) -> Answer:
        """Give what is known now."""
        numbers, objective = (self.kept, self.kept_worth) if self.keeps else (self.chosen, self.objective)
        chosen = sorted((self.configuration(i) for i in numbers), key=lambda each: each.task)
        bound = max(objective, self.proven)
        return Answer(tuple(chosen), objective, bound, self.prices, self.priced, len(self.pool), self.rounds)
