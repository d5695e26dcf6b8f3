"""CP-SAT: solve the master problem exactly, and run any of its models so that it can be stopped.

CP-SAT takes integers. Values are scaled so that the largest is near `_TARGET` and every row stays
under 2^31 (Boolean sums past that have proven wrong optima, or-tools 5293); the bound handed back
includes all that rounding can hide. Solutions are read only after OPTIMAL or FEASIBLE.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import ModuleType
from typing import TYPE_CHECKING, Any

from libra_plan.planner.optimize.backends import MasterResult
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.constraints import At, Choice, Constraint
from libra_plan.planner.optimize.interrupter import Interrupter
from libra_plan.planner.optimize.objective import TaskCandidates

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["cp_model", "run_cpsat", "solve_cpsat"]

_LEAST_S = 0.01  # deterministic seconds for a search that was ended before it began: it may try its hint
_TARGET = 1_000_000
_ROW_LIMIT = 2**31 - 1
_FINEST = 1_000_000  # strict amounts are read to a millionth


def _import_cp_model() -> Any:
    """Import OR-Tools' CP-SAT without pandas, which takes 0.3 s and of which nothing here needs anything.

    It is used for annotations and for series of variables only, so an empty module stands for it meanwhile.
    """
    absent = "pandas" not in sys.modules
    if absent:
        stub = ModuleType("pandas")
        stub.__getattr__ = lambda name: object  # type: ignore[method-assign]
        sys.modules["pandas"] = stub
    try:
        from ortools.sat.python import cp_model as found
    finally:
        if absent:
            del sys.modules["pandas"]
    return found


if not TYPE_CHECKING:
    cp_model = _import_cp_model()


def solve_cpsat(
    tasks: Sequence[TaskCandidates],
    constraints: Sequence[Constraint],
    values: Mapping[At, float],
    params: SolveParams,
    *,
    limit_s: float,
    hint: Choice | None = None,
    known_bound: float | None = None,
    reported: bool = False,
) -> MasterResult:
    """Choose candidates of the largest total value within the constraints, as `backends.maximise` says."""
    model = cp_model.CpModel()
    chosen = {
        (t, c): model.new_bool_var(f"x_{t}_{c}")
        for t, each in enumerate(tasks)
        for c in range(len(each.candidates))
    }
    for row in constraints:
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
    status = run_cpsat(solver, model, params, scale=scale if reported else None)
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


def _integers(constraint: Constraint) -> tuple[dict[At, int], int]:
    """Scale a constraint to integers without ever cutting a plan off: coefficients down, limit up.

    It stays necessary; placement checks cores and memory again, node by node. A strict one is counted in the
    largest unit that divides every coefficient, so that its sums are exact, and rounded the other way.
    """
    amounts, limit = constraint.coefficients, constraint.limit
    if all(float(k).is_integer() for k in amounts.values()):
        return {at: int(k) for at, k in amounts.items()}, math.floor(limit + 1e-9)
    if not constraint.strict:
        unit = max(1e-9, sum(abs(k) for k in amounts.values()) / (_ROW_LIMIT / 2))
        return {at: math.floor(k / unit) for at, k in amounts.items()}, math.ceil(limit / unit)
    exact = {at: Fraction(k).limit_denominator(_FINEST) for at, k in amounts.items()}
    denominator = math.lcm(*(k.denominator for k in exact.values()))
    whole = {at: int(k * denominator) for at, k in exact.items()}
    divisor = math.gcd(*whole.values()) or 1
    shrink = divisor * max(1, -(-sum(whole.values()) // divisor // (_ROW_LIMIT // 2)))
    return (
        {at: -(-k // shrink) for at, k in whole.items()},
        math.floor(Fraction(limit * (1 + 1e-12)) * denominator / shrink),
    )


class _Solutions(cp_model.CpSolverSolutionCallback):
    def __init__(self, interrupter: Interrupter, scale: float) -> None:
        super().__init__()
        self._interrupter, self._scale = interrupter, scale

    def on_solution_callback(self) -> None:
        """Report objective and bound."""
        bound = self.best_objective_bound / self._scale
        self._interrupter.report(self.objective_value / self._scale, bound)


def run_cpsat(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    params: SolveParams,
    *,
    scale: float | None = None,
) -> cp_model.CpSolverStatus:
    """Solve a model so that it can be stopped from outside, and note the work it took.

    With `scale`, objective and bound are reported as they improve, divided by it.
    """
    status = _run(solver, model, params.interrupter, scale)
    if params.work is not None:
        params.work.done_s += solver.response_proto.deterministic_time
    return status


def _run(
    solver: cp_model.CpSolver, model: cp_model.CpModel, interrupter: Interrupter | None, scale: float | None
) -> cp_model.CpSolverStatus:
    # CP-SAT would catch SIGINT itself, and the rest of the program would not be told
    solver.parameters.catch_sigint_signal = False
    if interrupter is None:
        return solver.solve(model)
    if interrupter.stopped:
        solver.parameters.max_deterministic_time = _LEAST_S
    callback = None
    if scale is not None:
        divisor = scale
        callback = _Solutions(interrupter, divisor)
        solver.best_bound_callback = lambda bound: interrupter.report(None, bound / divisor)
    with interrupter.over(solver.stop_search):
        return solver.solve(model, callback)
