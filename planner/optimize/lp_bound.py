"""The master problem as arrays, its LP relaxation by HiGHS, and the bound that dual prices prove.

Dual prices π ≥ 0 of the constraints bound every choice: Σ limit · π + Σ over tasks of max(0, the most that
a configuration is worth beyond what it takes at these prices). A choice with a configuration whose
reduced value is smaller than the task's best by w is worth at most the bound less w.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import highspy
import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.optimize.constraints import CUT, At, Choice, Constraint
from libra_plan.planner.optimize.objective import TaskCandidates, values_of

__all__ = ["Floats", "Ints", "LpBound", "LpRelaxation", "Master", "lp_bound", "master_of", "relax"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SAFETY = 1e-9
"""Relative: the sums of a bound are true to about this, and a bound must not be too low."""
TOLERANCE = 1e-9
_TRUE_TO = 1e-9  # of a row's largest coefficient
_SIFTED = 4_000  # columns from which on the LP begins with a few of them
_BISECTED = 40  # steps to the level of plain prices
_FIRST = 8  # columns of a task that the LP begins with, and that it is given at a time


@dataclass(frozen=True)
class Master:
    """At most one configuration a task, within the constraints that tasks share.

    Configurations are numbered task by task: those of task t are `first[t]` to `first[t + 1]`. Entry e says
    that configuration `column[e]` takes `amount[e]` of constraint `row[e]`; entries are sorted by column.
    """

    names: tuple[str, ...]
    limit: Floats
    value: Floats
    first: Ints
    row: Ints
    column: Ints
    amount: Floats

    @cached_property
    def task(self) -> Ints:
        """Return the task of each configuration."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    def number(self, choice: Choice) -> Ints:
        """Return the numbers of the chosen configurations."""
        return np.array(sorted(self.first[t] + c for t, c in choice.items()), dtype=np.int64)

    def choice(self, numbers: Ints) -> Choice:
        """Return the choice that some numbers make."""
        tasks = np.searchsorted(self.first, numbers, side="right") - 1
        return {int(t): int(n - self.first[t]) for t, n in zip(tasks, numbers, strict=True)}

    @cached_property
    def _entries(self) -> Ints:
        """Return where the entries of each configuration begin."""
        return np.searchsorted(self.column, np.arange(len(self.value) + 1))

    def demand(self, begin: int, end: int) -> Floats:
        """Return what consecutive configurations take, shape (end − begin, constraints)."""
        mine = slice(int(self._entries[begin]), int(self._entries[end]))
        found = np.zeros((end - begin, len(self.limit)))
        found[self.column[mine] - begin, self.row[mine]] = self.amount[mine]
        return found

    def taken(self, numbers: Ints) -> Floats:
        """Return what some configurations take together of each constraint."""
        chosen = np.zeros(len(self.value))
        chosen[numbers] = 1.0
        return _sums(self.row, self.amount * chosen[self.column], len(self.limit))

    @cached_property
    def tolerance(self) -> Floats:
        """Return what each constraint may be exceeded by, for the sake of rounding."""
        largest = np.ones(len(self.limit))
        np.maximum.at(largest, self.row, np.abs(self.amount))
        return _TRUE_TO * np.maximum(largest, np.abs(self.limit))

    def keeps(self, numbers: Ints) -> bool:
        """Whether a choice keeps every constraint."""
        return bool((self.taken(numbers) <= self.limit + self.tolerance).all())

    def reduced(self, prices: Floats) -> Floats:
        """Return what each configuration is worth beyond what it takes at these prices."""
        found: Floats = self.value - _sums(self.column, self.amount * prices[self.row], len(self.value))
        return found

    def loss(self, prices: Floats) -> Floats:
        """Return by how much a choice with each configuration stays below the bound, at least."""
        reduced = self.reduced(prices)
        found: Floats = self.best(reduced)[self.task] - reduced
        return found

    def best(self, reduced: Floats) -> Floats:
        """Return the largest reduced value of each task, 0 where that is negative."""
        most = np.zeros(len(self.first) - 1)
        np.maximum.at(most, self.task, reduced)
        return most

    def bound(self, prices: Floats) -> float:
        """Return what no choice exceeds, proven by these prices."""
        total = math.fsum(self.limit * prices) + math.fsum(self.best(self.reduced(prices)))
        return total + SAFETY * max(1.0, abs(total))

    def part(self, numbers: Ints) -> Master:
        """Return the same constraints over some of the configurations, numbered anew in their order."""
        at = np.full(len(self.value), -1)
        at[numbers] = np.arange(len(numbers))
        mine = at[self.column] >= 0
        return Master(
            self.names,
            self.limit,
            self.value[numbers],
            np.searchsorted(numbers, self.first),
            self.row[mine],
            at[self.column[mine]],
            self.amount[mine],
        )


def _sums(at: Ints, amounts: Floats, number: int) -> Floats:
    """Add up amounts by place; unlike `bincount`, nothing adds up to floats, too."""
    return np.bincount(at, amounts, minlength=number).astype(np.float64)


def master_of(
    tasks: Sequence[TaskCandidates], constraints: Sequence[Constraint], values: Mapping[At, float]
) -> Master:
    """Write constraints and values as arrays; that a task runs at most once needs no row."""
    first = np.cumsum([0, *(len(each.candidates) for each in tasks)])
    begins = first.tolist()
    value = np.zeros(begins[-1])
    value[[begins[t] + c for t, c in values]] = list(values.values())
    shared = [each for each in constraints if not _is_of_one_task(each)]
    counts = [len(each.coefficients) for each in shared]
    column = np.array([begins[t] + c for each in shared for t, c in each.coefficients], dtype=np.int64)
    amount = np.array([k for each in shared for k in each.coefficients.values()], dtype=np.float64)
    row = np.repeat(np.arange(len(shared)), counts)
    order = np.argsort(column, kind="stable")
    names = tuple(each.name for each in shared)
    limit = np.array([each.limit for each in shared], dtype=np.float64)
    return Master(names, limit, value, first, row[order], column[order], amount[order])


def _is_of_one_task(constraint: Constraint) -> bool:
    return constraint.name.startswith("one:") and len({t for t, _ in constraint.coefficients}) <= 1


def duals_of(master: Master, prices: Floats) -> dict[str, float]:
    """Name the dual prices that are not 0 by their constraints."""
    return {name: float(price) for name, price in zip(master.names, prices, strict=True) if price > 0.0}


# ---------------------------------------------------------------- the LP relaxation


@dataclass(frozen=True)
class LpRelaxation:
    """Dual prices by constraint, the bound they prove, and how much of each configuration the LP takes."""

    prices: Floats
    bound: float
    fraction: Floats
    infeasible: bool = False


def relax(
    master: Master,
    limit_s: float = math.inf,
    seed: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> LpRelaxation:
    """Solve the LP relaxation; at the time limit the prices are the best known by then.

    Of many configurations the LP begins with few, and gets more as long as they are worth more than
    they cost.
    """
    known = _first_columns(master)
    model = highs_model(master, known, seed)
    prices = np.zeros(len(master.limit))
    best = LpRelaxation(prices, master.bound(prices), np.zeros(len(master.value)))
    while True:
        limit_s -= run(model, limit_s)
        if model.getModelStatus() in INFEASIBLE:
            return replace(best, infeasible=True)
        solution = model.getSolution()
        if not solution.dual_valid:
            return best
        duals = np.asarray(solution.row_dual)
        prices = np.maximum(duals[: len(master.limit)], 0.0) * largest(master.value) / _units(master)
        bound = master.bound(prices)
        fraction = np.zeros(len(master.value))
        fraction[known] = solution.col_value
        nearer = bound <= best.bound
        best = LpRelaxation(prices if nearer else best.prices, min(bound, best.bound), fraction)
        more = _worth_adding(master, master.reduced(prices), known)
        if not len(more) or limit_s <= 0.0 or stopped():
            return best
        _add_columns(model, master, more)
        known = np.concatenate((known, more))


def _first_columns(master: Master) -> Ints:
    """Choose the configurations that the LP begins with: the best of each task at plain prices.

    Prices are plain when every constraint costs the same as a whole; how much, is what bounds best.
    """
    if len(master.value) <= _SIFTED or (master.limit < 0).any():
        return np.arange(len(master.value))
    plain = np.divide(1.0, master.limit, out=np.zeros(len(master.limit)), where=master.limit > 0)
    low, high = 0.0, float(master.best(master.value).sum())
    for _ in range(_BISECTED):
        third = (high - low) / 3
        if master.bound((low + third) * plain) < master.bound((high - third) * plain):
            high -= third
        else:
            low += third
    reduced = master.reduced(low * plain)
    return np.sort(_best_of_each(master, reduced, np.full(len(reduced), -np.inf), _FIRST))


def _worth_adding(master: Master, reduced: Floats, known: Ints) -> Ints:
    """Choose configurations that are worth more, at the LP's prices, than all that it knows of their task."""
    if len(known) == len(master.value):
        return np.zeros(0, dtype=np.int64)
    most = np.zeros(len(master.first) - 1)
    np.maximum.at(most, master.task[known], reduced[known])
    least = most + TOLERANCE * np.maximum(1.0, most)
    return _best_of_each(master, reduced, least[master.task], _FIRST)


def _best_of_each(master: Master, reduced: Floats, above: Floats, number: int) -> Ints:
    """Return the configurations of each task, so many at most, whose reduced value is largest and above."""
    able = np.flatnonzero(reduced > above)
    task = master.task[able]
    order = np.lexsort((-reduced[able], task))
    able, task = able[order], task[order]
    begins = np.searchsorted(task, task, side="left")
    found: Ints = able[np.arange(len(able)) - begins < number]
    return found


def largest(values: Floats) -> float:
    """Return the largest absolute value; 1 where there is none."""
    return float(np.abs(values).max(initial=0.0)) or 1.0


def _units(master: Master) -> Floats:
    """Return the largest amount of each constraint, by which it is divided so that tolerances hold."""
    units = np.zeros(len(master.limit))
    np.maximum.at(units, master.row, np.abs(master.amount))
    return np.where(units > 0, units, 1.0)


# ---------------------------------------------------------------- HiGHS

INFEASIBLE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
"""Whatever is chosen is bounded, so that the second means the first."""

OPTIMAL = highspy.HighsModelStatus.kOptimal


def highs_model(master: Master, columns: Ints, seed: int, *, integer: bool = False) -> highspy.Highs:
    """Write some configurations of a master for HiGHS, scaled so that values and amounts are at most 1.

    The last rows say that each task runs at most once.
    """
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    model.setOptionValue("random_seed", seed)
    for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance", "mip_feasibility_tolerance"):
        model.setOptionValue(name, TOLERANCE)
    tasks = len(master.first) - 1
    number = len(columns)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = number, len(master.limit) + tasks
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = master.value[columns] / largest(master.value)
    lp.col_lower_, lp.col_upper_ = np.zeros(number), np.ones(number)
    lp.row_lower_ = np.full(lp.num_row_, -highspy.kHighsInf)
    lp.row_upper_ = np.concatenate((master.limit / _units(master), np.ones(tasks)))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = _matrix(master, columns)
    if integer:
        lp.integrality_ = [highspy.HighsVarType.kInteger] * number
    model.passModel(lp)
    return model


def _matrix(master: Master, columns: Ints) -> tuple[Ints, Ints, Floats]:
    """Return starts, rows and values of some columns, in their order."""
    at = np.full(len(master.value), -1)
    at[columns] = np.arange(len(columns))
    mine = np.flatnonzero(at[master.column] >= 0)
    tasks = master.task[columns]
    column = np.concatenate((at[master.column[mine]], np.arange(len(columns))))
    row = np.concatenate((master.row[mine], len(master.limit) + tasks))
    amount = master.amount[mine] / _units(master)[master.row[mine]]
    order = np.argsort(column, kind="stable")
    start = np.searchsorted(column[order], np.arange(len(columns) + 1))
    return start, row[order], np.concatenate((amount, np.ones(len(columns))))[order]


def _add_columns(model: highspy.Highs, master: Master, columns: Ints) -> None:
    start, row, amount = _matrix(master, columns)
    number = len(columns)
    cost = master.value[columns] / largest(master.value)
    zeros, ones = np.zeros(number), np.ones(number)
    model.addCols(
        number, cost, zeros, ones, len(row), start[:-1].astype(np.int32), row.astype(np.int32), amount
    )


def run(model: highspy.Highs, limit_s: float) -> float:
    """Let HiGHS solve a model; return the seconds that it took."""
    before = float(model.getRunTime())
    model.setOptionValue("time_limit", before + min(max(limit_s, 0.02), 1e9))
    model.run()
    return float(model.getRunTime()) - before


def begin_with(model: highspy.Highs, values: Floats) -> None:
    """Give HiGHS a choice to begin with."""
    solution = highspy.HighsSolution()
    solution.col_value = values.tolist()
    model.setSolution(solution)


# ---------------------------------------------------------------- the bound of a policy's objective


@dataclass(frozen=True, slots=True)
class LpBound:
    """What no plan exceeds, and the dual prices of the constraints, by name, that prove it."""

    value: float
    duals: dict[str, float]


def lp_bound(
    tasks: Sequence[TaskCandidates],
    constraints: Sequence[Constraint],
    worst: Sequence[int] | None = None,
    limit_s: float = math.inf,
) -> LpBound | None:
    """Bound the sum of values over all plans, or with `worst` the least throughput of those tasks.

    Cuts are left out, so that the bound can be proven again from the problem alone. None when nothing keeps
    the constraints.
    """
    kept = [each for each in constraints if each.name != CUT and (each.coefficients or each.limit < 0)]
    if worst is not None:
        return _level_bound(tasks, kept, worst, limit_s)
    master = master_of(tasks, kept, values_of(tasks))
    found = relax(master, limit_s)
    return None if found.infeasible else LpBound(found.bound, duals_of(master, found.prices))


def _level_bound(
    tasks: Sequence[TaskCandidates], constraints: Sequence[Constraint], worst: Sequence[int], limit_s: float
) -> LpBound | None:
    """Bound the level that all of some tasks reach.

    The LP has one column more, the level as a part of the highest there could be, and a constraint
    `level:TASK` for each task, of which the level takes and every configuration gives what it reaches. The
    prices of these constraints add up to 1: at them, a configuration is worth its throughput times the
    price of its task.
    """
    master = master_of(tasks, constraints, {})
    reached = [max((entry.normalised for entry in tasks[t].candidates), default=0.0) for t in worst]
    if not worst or min(reached) <= 0.0:
        return LpBound(0.0, {})
    least = int(np.argmin(reached))
    rows, number = len(master.limit), len(master.value)
    throughput = np.array([entry.normalised for each in tasks for entry in each.candidates])
    level_row = np.full(len(tasks), -1)
    level_row[list(worst)] = rows + np.arange(len(worst))
    of_worst = np.flatnonzero(level_row[master.task] >= 0)
    column = np.concatenate((master.column, of_worst, np.full(len(worst), number)))
    row = np.concatenate((master.row, level_row[master.task[of_worst]], rows + np.arange(len(worst))))
    amount = np.concatenate((master.amount, -throughput[of_worst], np.full(len(worst), reached[least])))
    order = np.argsort(column, kind="stable")
    levels = Master(
        (*master.names, *(f"level:{tasks[t].task.id}" for t in worst)),
        np.concatenate((master.limit, np.zeros(len(worst)))),
        np.append(np.zeros(number), reached[least]),
        np.append(master.first, number + 1),
        row[order],
        column[order],
        amount[order],
    )
    found = relax(levels, limit_s)
    if found.infeasible:
        return None
    prices = found.prices / max(1.0, float(found.prices[rows:].sum()))
    prices[rows + least] += 1.0 - float(prices[rows:].sum())
    value = throughput * np.append(prices, 0.0)[level_row[master.task]]
    return LpBound(replace(master, value=value).bound(prices[:rows]), duals_of(levels, prices))
