"""The LP bound: the master with fractions of candidates allowed, by HiGHS through PuLP."""

from __future__ import annotations

import math
from collections.abc import Sequence

from libra_plan.planner.optimize.constraints import Row
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["lp_bound", "lp_prices", "lp_worst_bound"]

_OPTIMAL = 1  # the same number in PuLP 3 (LpSolutionOptimal) and 4 (LpSolveStatus.Optimal)
_SAFETY = 1e-9  # relative: HiGHS's optimum is true to about this, and a bound must not be below it


def lp_bound(tasks: Sequence[TaskCandidates], rows: Sequence[Row]) -> float | None:
    """Bound Σ worth over all plans; None when HiGHS is not available or gives no optimum."""
    found = _solve(tasks, rows, worst=None)
    return None if found is None else found[0]


def lp_worst_bound(
    tasks: Sequence[TaskCandidates], rows: Sequence[Row], among: Sequence[int]
) -> float | None:
    """Bound the smallest normalised throughput that tasks `among` can all reach."""
    found = _solve(tasks, rows, worst=among)
    return None if found is None else found[0]


def lp_prices(
    tasks: Sequence[TaskCandidates], rows: Sequence[Row], worst: Sequence[int] | None = None
) -> dict[str, float] | None:
    """Give the price of each row by name: what one more unit of its limit adds to the LP's optimum.

    With `worst` the optimum is that of `lp_worst_bound`. None when HiGHS gives no optimum.
    """
    found = _solve(tasks, rows, worst=worst)
    return None if found is None else found[1]


def _solve(
    tasks: Sequence[TaskCandidates], rows: Sequence[Row], worst: Sequence[int] | None
) -> tuple[float, dict[str, float]] | None:
    """Solve the LP: its value, rounded up, and the prices of the rows."""
    import pulp

    solver = pulp.HiGHS(msg=False, output_flag=False)
    if not solver.available():
        return None
    model = pulp.LpProblem("master", pulp.LpMaximize)
    chosen = {
        (t, c): model.add_variable(f"x_{t}_{c}", 0, 1)
        for t, each in enumerate(tasks)
        for c in range(len(each.candidates))
    }
    written = [row for row in rows if row.coefficients]
    if worst is None:
        model += pulp.lpSum(tasks[t].candidates[c].worth * x for (t, c), x in chosen.items())
    else:
        level = model.add_variable("level")
        model += level
    for row in written:
        model += pulp.lpSum(k * chosen[at] for at, k in row.coefficients.items()) <= row.limit
    for t in worst or ():
        reach = [entry.normalised * chosen[t, c] for c, entry in enumerate(tasks[t].candidates)]
        model += level <= pulp.lpSum(reach)
    ended = model.solve(solver)
    # PuLP 3 keeps the outcome on the model (where `status` reads Optimal at a time limit too, and
    # `sol_status` tells); PuLP 4 returns it.
    outcome = model.sol_status if hasattr(model, "sol_status") else ended.status
    value = pulp.value(model.objective)
    if outcome != _OPTIMAL or value is None or not math.isfinite(value):
        return None
    # HiGHS has the rows in the order they were written; PuLP 3 flips the sign of its objective
    duals = model.solverModel.getSolution().row_dual
    prices = {row.name: abs(dual) for row, dual in zip(written, duals, strict=False)}
    return float(value) + _SAFETY * max(1.0, abs(float(value))), prices
