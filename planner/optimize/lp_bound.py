"""The master problem as arrays, its LP relaxation by HiGHS, and the bound that dual prices prove.

Dual prices π ≥ 0 of the constraints bound every choice: Σ limit · π + Σ over tasks of max(0, the most that
a configuration's value exceeds its demands at these prices). A choice with a configuration whose
reduced value is smaller than the task's best by w has at most the value of the bound less w.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np

from libra_plan.planner.optimize.constraints import CUT, Constraint
from libra_plan.planner.optimize.lp_master import Floats, Ints, Master, duals_of, largest, master_of, units_of
from libra_plan.planner.optimize.objective import TaskCandidates, values_of

__all__ = [
    "INFEASIBLE",
    "OPTIMAL",
    "TOLERANCE",
    "LpBound",
    "LpRelaxation",
    "begin_with",
    "highs_model",
    "lp_bound",
    "relax",
    "run_highs",
]

TOLERANCE = 1e-9
_SIFTED = 4_000  # columns from which on the LP begins with a few of them
_BISECTED = 40  # steps to the level of plain prices
_FIRST = 8  # columns of a task that the LP begins with, and gets at a time


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

    Of many configurations the LP begins with few, and gets more as long as their value is larger than
    they cost.
    """
    known = _first_columns(master)
    model = highs_model(master, known, seed)
    prices = np.zeros(len(master.limit))
    best = LpRelaxation(prices, master.bound(prices), np.zeros(len(master.value)))
    while True:
        limit_s -= run_highs(model, limit_s)
        if model.getModelStatus() in INFEASIBLE:
            return replace(best, infeasible=True)
        solution = model.getSolution()
        if not solution.dual_valid:
            return best
        duals = np.asarray(solution.row_dual)
        prices = np.maximum(duals[: len(master.limit)], 0.0) * largest(master.value) / units_of(master)
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
    """Choose configurations with a larger reduced value than all columns of their task in the LP."""
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
    lp.row_upper_ = np.concatenate((master.limit / units_of(master), np.ones(tasks)))
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
    amount = master.amount[mine] / units_of(master)[master.row[mine]]
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


def run_highs(model: highspy.Highs, limit_s: float) -> float:
    """Solve a model with HiGHS; return the seconds that it took."""
    before = float(model.getRunTime())
    model.setOptionValue("time_limit", before + min(max(limit_s, 0.02), 1e9))
    model.run()
    return float(model.getRunTime()) - before


def begin_with(model: highspy.Highs, values: Floats) -> None:
    """Pass HiGHS a choice to start from."""
    solution = highspy.HighsSolution()
    solution.col_value = values.tolist()
    model.setSolution(solution)


# ---------------------------------------------------------------- the bound of a policy's objective


@dataclass(frozen=True, slots=True)
class LpBound:
    """The bound on every plan, and the dual prices of the constraints, by name, that prove it."""

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
    prices of these constraints add up to 1: at them, the value of a configuration is its throughput times the
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
