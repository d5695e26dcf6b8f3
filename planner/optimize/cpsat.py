"""The master by CP-SAT: choose at most one candidate per task, exactly.

CP-SAT takes integers. Values are scaled so that the largest is near `_TARGET` and every row stays
under 2^31 (Boolean sums past that have proven wrong optima, or-tools 5293); the bound handed back
includes all that rounding can hide. Solutions are read only after OPTIMAL or FEASIBLE.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ortools.sat.python import cp_model

from libra_plan.planner.optimize.backends import MasterResult
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.constraints import At, Choice, Row
from libra_plan.planner.optimize.cpsat_watch import run
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["maximise"]

_TARGET = 1_000_000
_ROW_LIMIT = 2**31 - 1


def maximise(
    tasks: Sequence[TaskCandidates],
    rows: Sequence[Row],
    values: Mapping[At, float],
    params: SolveParams,
    *,
    limit_s: float,
    hint: Choice | None = None,
    known_bound: float | None = None,
    reported: bool = False,
) -> MasterResult:
    """Choose candidates of the largest total value within the rows, as `backends.maximise` says."""
    model = cp_model.CpModel()
    chosen = {
        (t, c): model.new_bool_var(f"x_{t}_{c}")
        for t, each in enumerate(tasks)
        for c in range(len(each.candidates))
    }
    for row in rows:
        coefficients, limit = _integers(row)
        model.add(
            cp_model.LinearExpr.weighted_sum([chosen[at] for at in coefficients], list(coefficients.values()))
            <= limit
        )
    scale = _scale(list(values.values()), len(tasks))
    rounding = 0.5 * len({t for t, _ in values})  # one candidate per task, each rounded by half a unit
    if values:
        total = cp_model.LinearExpr.weighted_sum(
            [chosen[at] for at in values], [round(value * scale) for value in values.values()]
        )
        if known_bound is not None:
            model.add(total <= math.floor(known_bound * scale + rounding))
        model.maximize(total)
    if hint is not None:
        for (t, c), x in chosen.items():
            model.add_hint(x, hint.get(t) == c)
    solver = _solver(params, limit_s)
    status = run(solver, model, params, scale=scale if reported else None)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"the master model is invalid: {model.validate()}")
    if status == cp_model.INFEASIBLE:
        return MasterResult(None, -math.inf, optimal=True, infeasible=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return MasterResult(None, math.inf, optimal=False)
    choice = {t: c for (t, c), x in chosen.items() if solver.value(x)}
    bound = (solver.best_objective_bound + rounding) / scale
    return MasterResult(choice, bound, status == cp_model.OPTIMAL)


def _solver(params: SolveParams, limit_s: float) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = params.seed
    solver.parameters.relative_gap_limit = params.gap
    solver.parameters.num_workers = 1 if params.deterministic else params.workers
    if params.deterministic:
        solver.parameters.max_deterministic_time = limit_s
    else:
        solver.parameters.max_time_in_seconds = limit_s
    return solver


def _scale(values: Sequence[float], terms: int) -> float:
    largest = max((abs(value) for value in values), default=1.0) or 1.0
    return min(_TARGET, _ROW_LIMIT / 4 / max(1, terms)) / largest


def _integers(row: Row) -> tuple[dict[At, int], int]:
    """Scale a row to integers without ever cutting a plan off: coefficients down, limit up.

    The row stays necessary; placement checks cores and memory again, node by node.
    """
    if all(float(k).is_integer() for k in row.coefficients.values()):
        return {at: int(k) for at, k in row.coefficients.items()}, math.floor(row.limit + 1e-9)
    unit = max(1e-9, sum(abs(k) for k in row.coefficients.values()) / (_ROW_LIMIT / 2))
    return {at: math.floor(k / unit) for at, k in row.coefficients.items()}, math.ceil(row.limit / unit)
