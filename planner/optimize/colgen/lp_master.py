"""The restricted master: the LP over the configurations known, and its integer version, both by HiGHS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.pool import Pool
from libra_plan.planner.optimize.colgen.resources import Resources

__all__ = ["IntegerAnswer", "LpMaster", "solve_integer"]

_INF = highspy.kHighsInf

# With few tasks rows are dense, presolve finds nothing, and many kept cuts make each LP slow.
# Measured on 8 and 24 tasks: 1.3 s against 2.0 s and 3.8 s against 5.3 s; 200 tasks need presolve.
_FEW_TASKS = 100
_OF_FEW = {"presolve": "off", "mip_pool_soft_limit": 100}


class LpMaster:
    """The LP of one pool; solving again starts from the basis of the last time."""

    def __init__(self, resources: Resources, tasks: int):
        self.resources, self.tasks, self.known = resources, tasks, 0
        self._lp = _model(resources, tasks)

    def solve(self, pool: Pool) -> tuple[float, Floats]:
        """Give the LP's value and the prices of the rows; takes in new configurations."""
        if len(pool) > self.known:
            new = np.arange(self.known, len(pool))
            _add(self._lp, pool, new, len(self.resources.names), pool.task[new])
            self.known = len(pool)
        self._lp.run()
        duals = np.asarray(self._lp.getSolution().row_dual)
        rows = len(self.resources.names)
        value = float(self._lp.getInfo().objective_function_value)
        return value, np.maximum(duals[:rows], 0.0)

    def fractions(self) -> Floats:
        """Give the fraction of every configuration of the pool."""
        return np.asarray(self._lp.getSolution().col_value)[len(self.resources.units) :]


@dataclass(frozen=True, slots=True)
class IntegerAnswer:
    """Configurations chosen (numbers of the pool) and the bound over the configurations offered."""

    chosen: tuple[int, ...] | None
    bound: float


def solve_integer(
    resources: Resources,
    pool: Pool,
    offered: Ints,
    *,
    time_limit_s: float,
    gap: float,
    hint: Sequence[int] = (),
    stop: Callable[[], bool] = lambda: False,
    seed: int = 0,
) -> IntegerAnswer:
    """Choose at most one of the offered configurations per task, best in all; None if HiGHS found nothing.

    Offered configurations that hold the hint start the search.
    """
    tasks, row = np.unique(pool.task[offered], return_inverse=True)
    model = _model(resources, len(tasks))
    _add(model, pool, offered, len(resources.names), row)
    number = len(resources.units) + len(offered)
    model.changeColsIntegrality(
        number, np.arange(number, dtype=np.int32), np.full(number, highspy.HighsVarType.kInteger)
    )
    for name, value in _OF_FEW.items() if len(tasks) <= _FEW_TASKS else ():
        model.setOptionValue(name, value)
    model.setOptionValue("threads", 1)
    model.setOptionValue("time_limit", time_limit_s)
    model.setOptionValue("mip_rel_gap", gap)
    model.setOptionValue("random_seed", seed)
    if len(hint):
        _hint(model, resources, pool, offered, hint)
    model.cbMipInterrupt.subscribe(lambda event: event.interrupt() if stop() else None)
    model.run()
    info = model.getInfo()
    bound = float(info.mip_dual_bound)
    if info.primal_solution_status != 2:
        return IntegerAnswer(None, bound)
    values = np.asarray(model.getSolution().col_value)[len(resources.units) :]
    return IntegerAnswer(tuple(int(i) for i in offered[values > 0.5]), bound)


def _model(resources: Resources, tasks: int) -> highspy.Highs:
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    rows = len(resources.names) + tasks
    upper = np.concatenate((resources.limit, np.ones(tasks)))
    none = np.zeros(0, dtype=np.int32)
    model.addRows(rows, np.full(rows, -_INF), upper, 0, np.zeros(rows, dtype=np.int32), none, np.zeros(0))
    model.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for unit in resources.units:
        at = np.flatnonzero(unit).astype(np.int32)
        model.addCol(0.0, 0.0, _INF, len(at), at, unit[at])
    return model


def _add(model: highspy.Highs, pool: Pool, configurations: Ints, rows: int, task_row: Ints) -> None:
    demand = np.concatenate((pool.demand[configurations], np.ones((len(configurations), 1))), axis=1)
    at, row = np.nonzero(demand)
    index = np.where(row < rows, row, rows + task_row[at]).astype(np.int32)
    start = np.searchsorted(at, np.arange(len(configurations))).astype(np.int32)
    number = len(configurations)
    lower, upper = np.zeros(number), np.full(number, 1.0)
    model.addCols(number, pool.value[configurations], lower, upper, len(index), start, index, demand[at, row])


def _hint(model: highspy.Highs, resources: Resources, pool: Pool, offered: Ints, hint: Sequence[int]) -> None:
    chosen = np.isin(offered, np.asarray(hint))
    solution = highspy.HighsSolution()
    units = resources.opened(pool.demand[np.asarray(hint, dtype=np.int64)].sum(axis=0))
    solution.col_value = [*units.tolist(), *chosen.astype(float).tolist()]
    model.setSolution(solution)
