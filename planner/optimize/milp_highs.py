"""HiGHS in this process, through PuLP: it can be watched, hinted and ended early."""

from __future__ import annotations

import math
from typing import Any

import highspy
import pulp

from libra_plan.planner.optimize.milp import Answer, Question, choice_of

__all__ = ["ask_highs"]

_FEASIBLE = 2  # highspy.SolutionStatus.kSolutionStatusFeasible, as a number in HighsInfo
_ENDED = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
_TOLERANCE = 1e-9


class _Hinted(pulp.HiGHS):  # type: ignore[misc]
    """PuLP 3 cannot hand HiGHS a start, PuLP 4 can: this does it for both."""

    start: dict[str, float] | None = None

    def callSolver(self, lp: Any) -> None:  # PuLP's name for it
        if self.start is not None:
            # PuLP 3 sorts the variables by name; 4 gives HiGHS those it lists here
            order = lp.exported_variables() if hasattr(lp, "exported_variables") else lp.variables()
            # a question without values gets a variable of PuLP's own
            values = [self.start.get(variable.name, 0.0) for variable in order]
            lp.solverModel.setSolution(len(values), list(range(len(values))), values)
        lp.solverModel.run()


def ask_highs(question: Question) -> Answer:
    """Solve with HiGHS; whoever looks on is told objective and bound as they improve."""

    def look(kind: object, message: str, out: Any, into: Any, data: object) -> None:
        question.report(out.mip_primal_bound, out.mip_dual_bound)
        if question.watch is not None and question.watch.stopped:
            into.user_interrupt = True

    solver = _Hinted(
        msg=False,
        output_flag=False,  # PuLP 4's `msg` lets a banner through
        gapRel=question.gap,
        gapAbs=_TOLERANCE,
        timeLimit=question.limit_s,
        threads=max(1, question.threads),
        callbackTuple=(look, None),
        callbacksToActivate=[highspy.cb.HighsCallbackType.kCallbackMipInterrupt],
        random_seed=question.seed,
        mip_feasibility_tolerance=_TOLERANCE,
        primal_feasibility_tolerance=_TOLERANCE,
    )
    if question.hint is not None:
        solver.start = {x.name: float(question.hint.get(t) == c) for (t, c), x in question.chosen.items()}
    question.model.solve(solver)
    highs = question.model.solverModel
    info = highs.getInfo()
    found = info.primal_solution_status == _FEASIBLE
    choice = choice_of(question.chosen) if found else None
    bound = info.mip_dual_bound
    return Answer(choice, bound if math.isfinite(bound) else -math.inf, highs.getModelStatus() in _ENDED)
