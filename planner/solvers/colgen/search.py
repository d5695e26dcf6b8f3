"""The optimizer: prices from an LP over columns, columns from oracles, a choice and its proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from libra_plan.planner.solvers.colgen.fronts import Floats, Ints
from libra_plan.planner.solvers.colgen.lp_master import LpMaster, solve_integer
from libra_plan.planner.solvers.colgen.oracle import Oracle
from libra_plan.planner.solvers.colgen.pool import Pool
from libra_plan.planner.solvers.colgen.resources import Resources
from libra_plan.planner.solvers.colgen.rounding import complete, round_lp

__all__ = ["Answer", "Chosen", "Limits", "Progress", "optimise"]

Progress = Callable[[float, float, float, float], None]
"""Called with objective, bound, relative gap and seconds since the start."""

_SAFETY = 1e-9


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop: seconds, the relative gap wanted, and sizes of what is looked at."""

    time_limit_s: float = 60.0
    gap: float = 1e-4
    every_limit: int = 3000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Chosen:
    """The column a task runs in: value, demand, and the oracle's handle to describe it."""

    task: int
    value: float
    demand: Floats
    handle: object


@dataclass(frozen=True, slots=True)
class Answer:
    """The choice, its value, what no choice can exceed, and the row prices of the bound."""

    chosen: tuple[Chosen, ...]
    objective: float
    bound: float
    prices: Floats
    columns: int
    rounds: int

    @property
    def gap(self) -> float:
        """Give the relative gap."""
        return (self.bound - self.objective) / max(abs(self.objective), 1e-9)


def optimise(
    resources: Resources,
    oracles: Sequence[Oracle],
    limits: Limits = Limits(),  # noqa: B008
    *,
    progress: Progress | None = None,
    stop: Callable[[], bool] = lambda: False,
    prices: Floats | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Choose at most one column per task, best in all, until the gap, the limit or `stop`.

    Always answers: at the limit with the best choice so far and a bound that holds. `prices` of an
    earlier solve of a similar problem save rounds.
    """
    run = _Run(resources, oracles, limits, progress, stop, clock)
    run.first(prices)
    run.relax()
    run.integer()
    return run.answer()


@dataclass
class _Run:
    resources: Resources
    oracles: Sequence[Oracle]
    limits: Limits
    progress: Progress | None
    stop: Callable[[], bool]
    clock: Callable[[], float]
    rounds: int = 0
    chosen: tuple[int, ...] = ()
    objective: float = 0.0
    bound: float = np.inf
    prices: Floats = field(init=False)
    reduced: Floats = field(init=False)
    pool: Pool = field(init=False)
    master: LpMaster = field(init=False)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()
        self.pool = Pool(len(self.resources.names))
        self.master = LpMaster(self.resources, len(self.oracles))
        self.prices = np.zeros(len(self.resources.names))
        self.reduced = np.zeros(len(self.oracles))

    @property
    def gap(self) -> float:
        return (self.bound - self.objective) / max(abs(self.objective), 1e-9)

    @property
    def spent_s(self) -> float:
        return self.clock() - self.began

    @property
    def over(self) -> bool:
        return self.stop() or self.spent_s >= self.limits.time_limit_s or self.gap <= self.limits.gap

    def first(self, prices: Floats | None) -> None:
        """Find prices on a sample of the tasks with as small a share of everything, then go larger."""
        if prices is None:
            prices = self._guess()
        self.price(prices, keep=4)
        self.better(complete(self.resources, self.pool, prices))

    def _guess(self) -> Floats:
        tasks = len(self.oracles)
        if tasks <= 48:
            return _flat_prices(self.resources, self.oracles, 1.0)
        sample = np.linspace(0, tasks - 1, max(24, tasks // 5)).round().astype(int)
        smaller = _Run(
            self.resources.scaled(len(sample) / tasks),
            [self.oracles[i] for i in sample],
            self.limits,
            None,
            self.stop,
            self.clock,
        )
        smaller.first(None)
        smaller.relax(gap=3e-3)
        for number in range(len(smaller.pool)):
            task = int(sample[smaller.pool.task[number]])
            from libra_plan.planner.solvers.colgen.oracle import Found

            found = Found(float(smaller.pool.value[number]), smaller.pool.demand[number].copy(), smaller.pool.handle(number), 0.0)
            self.pool.add(task, [found])
        return smaller.prices

    def relax(self, gap: float | None = None) -> None:
        """Solve the LP over all columns: price until its value meets the bound."""
        wanted = self.limits.gap / 10 if gap is None else gap
        while not (self.stop() or self.spent_s >= self.limits.time_limit_s):
            value, prices, worth = self.master.solve(self.pool)
            if gap is None:
                self.better(round_lp(self.resources, self.pool, self.master.fractions(), prices))
            if self.bound - value <= wanted * max(abs(value), 1e-9):
                return
            before = self.bound
            mixed = 0.3 * self.prices + 0.7 * prices if self.rounds > 1 else prices
            if self.price(mixed, worth=(prices, worth)) == 0 and self.bound >= before - 1e-12:
                if self.price(prices, worth=(prices, worth)) == 0:
                    return

    def price(self, prices: Floats, keep: int = 4, worth: tuple[Floats, Floats] | None = None) -> int:
        """Ask every task for its best columns at these prices; count those that are new.

        The answers bound every plan: limits at these prices, and each task's highest reduced value.
        """
        self.rounds += 1
        new, total = 0, 0.0
        reduced = np.zeros(len(self.oracles))
        for task, oracle in enumerate(self.oracles):
            answer = oracle.price(prices, 0.0, keep)
            reduced[task] = max(0.0, answer.bound)
            new += self.pool.add(task, answer.columns)
        total = float(self.resources.limit @ prices) + float(reduced.sum())
        total += _SAFETY * max(1.0, abs(total))
        if total < self.bound:
            self.bound, self.prices, self.reduced = total, prices, reduced
            self.report()
        return new

    def better(self, chosen: Sequence[int]) -> None:
        """Take a choice if it is the best so far."""
        value = float(self.pool.value[np.asarray(chosen, dtype=np.int64)].sum())
        if value > self.objective:
            self.chosen, self.objective = tuple(chosen), value
            self.report()

    def report(self) -> None:
        if self.progress is not None and self.objective > 0:
            self.progress(self.objective, self.bound, self.gap, self.spent_s)

    def integer(self) -> None:
        """Close the gap: columns near the prices, HiGHS over them, wider while it does not meet."""
        window = min(self.bound - self.objective, 4 * self.limits.gap * self.objective)
        lp_bound = self.bound
        while not self.over:
            complete_to = self._enrich(window)
            offered = self._near(window)
            answer = solve_integer(
                self.resources,
                len(self.oracles),
                self.pool,
                offered,
                time_limit_s=max(0.05, self.limits.time_limit_s - self.spent_s),
                gap=self.limits.gap * 0.5,
                hint=self.chosen,
                stop=self.stop,
                seed=self.limits.seed,
            )
            if answer.chosen is not None:
                self.better(answer.chosen)
            # A plan with a column outside the window is worth less than the LP bound by it.
            self.bound = min(self.bound, max(answer.bound + _SAFETY, lp_bound - complete_to, self.objective))
            self.report()
            if window >= lp_bound - self.objective:
                return
            window = min(3 * window, lp_bound - self.objective)

    def _near(self, window: float) -> Ints:
        """List columns whose loss at the prices of the bound is within the window, and the incumbent's."""
        loss = self.reduced[self.pool.task] - (self.pool.value - self.pool.demand @ self.prices)
        near = loss <= window
        near[list(self.chosen)] = True
        return np.flatnonzero(near)

    def _enrich(self, window: float) -> float:
        """Find all columns within the window; give the window for which they are complete."""
        complete_to = window
        for task, oracle in enumerate(self.oracles):
            at_least = self.reduced[task] - window
            found, whole = oracle.every(self.prices, max(at_least, 1e-12), self.limits.every_limit)
            self.pool.add(task, found)
            if not whole:
                complete_to = 0.0
        return complete_to

    def answer(self) -> Answer:
        chosen = tuple(
            Chosen(int(self.pool.task[i]), float(self.pool.value[i]), self.pool.demand[i].copy(), self.pool.handle(i))
            for i in sorted(self.chosen, key=lambda i: int(self.pool.task[i]))
        )
        return Answer(chosen, self.objective, self.bound, self.prices, len(self.pool), self.rounds)


def _flat_prices(resources: Resources, oracles: Sequence[Oracle], scale: float) -> Floats:
    """Give one price for whatever columns take, near where demand meets the limits."""
    # The price of the first row that has a limit is searched; rows that units give share it.
    rows = resources.limit > 0
    low, high, best = 0.0, 1.0, (np.inf, np.zeros(len(rows)))
    for _ in range(14):
        middle = high if low == 0.0 and high > best[1].max(initial=0.0) and best[0] == np.inf else (low + high) / 2
        prices = _priced(resources, middle)
        answers = [oracle.price(prices, 0.0, 1) for oracle in oracles]
        bound = float(resources.limit @ prices) + sum(max(0.0, a.bound) for a in answers)
        demand = sum((a.columns[0].demand for a in answers if a.columns), np.zeros(len(rows)))
        if bound < best[0]:
            best = (bound, prices)
        if resources.fits(demand):
            high = middle
        else:
            low = middle
            if middle == high:
                high *= 2
    return best[1]


def _priced(resources: Resources, price: float) -> Floats:
    prices = np.zeros(len(resources.names))
    for unit in resources.units:
        takes = np.flatnonzero(unit > 0)
        gives = np.flatnonzero(unit < 0)
        prices[takes] = price
        if len(gives):
            prices[gives[0]] = price * float(unit[takes].sum()) / -unit[gives[0]]
    if not len(resources.units):
        prices[resources.limit > 0] = price
    return prices
