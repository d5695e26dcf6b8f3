"""Run CP-SAT so that somebody else can look on and end it."""

from __future__ import annotations

from ortools.sat.python import cp_model

from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.interrupter import Watch

__all__ = ["run"]

_LOOK_S = 0.01  # deterministic seconds for a search that was ended before it began: it may try its hint


class _Solutions(cp_model.CpSolverSolutionCallback):
    def __init__(self, watch: Watch, scale: float) -> None:
        super().__init__()
        self._watch, self._scale = watch, scale

    def on_solution_callback(self) -> None:
        """Tell whoever looks on."""
        self._watch.report(self.objective_value / self._scale, self.best_objective_bound / self._scale)


def run(
    solver: cp_model.CpSolver,
    model: cp_model.CpModel,
    params: SolveParams,
    *,
    scale: float | None = None,
) -> cp_model.CpSolverStatus:
    """Solve a model for whoever watches, and note the work it took.

    With `scale`, the watch is told objective and bound as they improve, divided by it.
    """
    status = _run(solver, model, params.watch, scale)
    if params.work is not None:
        params.work.done_s += solver.response_proto.deterministic_time
    return status


def _run(
    solver: cp_model.CpSolver, model: cp_model.CpModel, watch: Watch | None, scale: float | None
) -> cp_model.CpSolverStatus:
    # CP-SAT would catch SIGINT for itself, and nobody else would learn that the user wants to stop
    solver.parameters.catch_sigint_signal = False
    if watch is None:
        return solver.solve(model)
    if watch.stopped:
        solver.parameters.max_deterministic_time = _LOOK_S
    callback = None
    if scale is not None:
        divisor = scale
        callback = _Solutions(watch, divisor)
        solver.best_bound_callback = lambda bound: watch.report(None, bound / divisor)
    with watch.over(solver.stop_search):
        return solver.solve(model, callback)
