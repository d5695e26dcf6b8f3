"""The master problem by HiGHS or CBC through PuLP: an independent check on CP-SAT.

The model always *minimises* minus the value, because PuLP 3 flips the sign of a maximisation before HiGHS
sees it and leaves the bound flipped. What comes back is trusted only after its constraints have been added
up again here. CBC tells PuLP no bound: where it ended by itself, what it allowed itself as a gap is one,
else the LP's bound counts.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import highspy
import psutil
import pulp

from libra_plan.errors import InputError, LibraError
from libra_plan.planner.optimize.backends import MasterResult
from libra_plan.planner.optimize.base import SolveParams, SolverBackend
from libra_plan.planner.optimize.constraints import At, Choice, Constraint
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["available_backends", "solve_milp"]

_TRUE_TO = 1e-6  # of a constraint's largest coefficient: a solver's tolerance, with room
_BOUND_TRUE_TO = 1e-9  # relative, as in lp_bound.py
_TOLERANCE = 1e-9
_HALF = 0.5
_OPTIMAL = 1  # the same number in PuLP 3 (LpSolutionOptimal) and 4 (LpSolveStatus.Optimal)
_FEASIBLE = 2  # highspy.SolutionStatus.kSolutionStatusFeasible, as a number in HighsInfo
_ENDED = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kInfeasible)
_POLL_S = 0.02
_GRACE_S = 5.0  # for CBC to write its answer after the limit; then it is taken to hang (coin-or/pulp 737)
_EARLY = 0.9  # of the time limit: what took longer may not have ended by itself

_Report = Callable[[float | None, float | None], None]


@dataclass(frozen=True, slots=True)
class _Model:
    """A model ready to be solved, with the variable of each candidate; it minimises."""

    program: Any
    chosen: Mapping[At, Any]
    params: SolveParams
    limit_s: float


@dataclass(frozen=True, slots=True)
class _Found:
    """The candidates a solver chose (None: nothing found) and the model's lower bound.

    `complete`: it ended by itself, so that finding nothing means that there is nothing.
    """

    choice: Choice | None
    bound: float
    complete: bool


def available_backends() -> dict[SolverBackend, str]:
    """Map every solver that can run here to the path of its program (empty: none of its own).

    PuLP is asked. PuLP 3 brings a CBC, under a name that is deprecated; PuLP 4 takes the one on PATH.
    """
    ready = pulp.listSolvers(onlyAvailable=True)
    found = {SolverBackend.CP_SAT: ""}
    if "HiGHS" in ready:
        found[SolverBackend.HIGHS] = ""
    if "COIN_CMD" in ready:
        found[SolverBackend.CBC] = str(pulp.COIN_CMD(msg=False).path)
    elif "PULP_CBC_CMD" in ready:
        found[SolverBackend.CBC] = str(pulp.PULP_CBC_CMD.pulp_cbc_path)
    return found


def solve_milp(
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
    path = _path(params)
    _refuse_non_numbers(constraints, values)
    if any(not each.coefficients and each.limit < 0 for each in constraints):
        return MasterResult(None, -math.inf, optimal=True, infeasible=True)
    scale = max((abs(value) for value in values.values()), default=0.0) or 1.0

    def report(value: float | None, bound: float | None) -> None:
        if params.interrupter is not None and reported:
            params.interrupter.report(_back(value, scale), _back(bound, scale))

    program, chosen = _program(tasks, constraints, values, scale)
    model = _Model(program, chosen, params, limit_s)
    found = _by_highs(model, hint, report) if params.solver is SolverBackend.HIGHS else _by_cbc(model, path)
    return _checked(found, constraints, values, scale, params, known_bound)


def _back(value: float | None, scale: float) -> float | None:
    return None if value is None or not math.isfinite(value) else -value * scale


def _path(params: SolveParams) -> str:
    """Find the solver; an error lists the ones that can be used."""
    ready = available_backends()
    if params.solver not in ready:
        raise InputError(
            f"the solver {params.solver.value} is not available here",
            got=f"--solver {params.solver.value}",
            allowed=", ".join(backend.value for backend in ready),
            way_out=(
                "install cbc and put it on PATH, or take another one"
                if params.solver is SolverBackend.CBC
                else "install highspy, or take another one"
            ),
        )
    if params.deterministic:
        raise InputError(
            "only cp-sat can count its work, so only its plans are the same on every run",
            got=f"--deterministic with --solver {params.solver.value}",
            allowed=SolverBackend.CP_SAT.value,
            way_out="leave one of the two out",
        )
    return ready[params.solver]


def _refuse_non_numbers(constraints: Sequence[Constraint], values: Mapping[At, float]) -> None:
    """Refuse what is not finite: HiGHS has called a row with NaN optimal (coin-or/pulp 855)."""
    for each in constraints:
        if not all(map(math.isfinite, (each.limit, *each.coefficients.values()))):
            raise RuntimeError(f"constraint {each.name} of the master has a number that is not finite")
    for at, value in values.items():
        if not math.isfinite(value):
            raise RuntimeError(f"the value of candidate {at[1]} of task {at[0]} is not finite: {value}")


def _program(
    tasks: Sequence[TaskCandidates],
    constraints: Sequence[Constraint],
    values: Mapping[At, float],
    scale: float,
) -> tuple[Any, dict[At, Any]]:
    """Write the model; constraints are divided by their largest coefficient, so that tolerances hold."""
    program = pulp.LpProblem("master", pulp.LpMinimize)
    chosen = {
        (t, c): program.add_variable(f"x_{t}_{c}", 0, 1, pulp.LpInteger)
        for t, each in enumerate(tasks)
        for c in range(len(each.candidates))
    }
    program += pulp.lpSum(-value / scale * chosen[at] for at, value in values.items())
    for each in constraints:
        if each.coefficients:
            unit = _unit(each)
            terms = pulp.lpSum(k / unit * chosen[at] for at, k in each.coefficients.items())
            program += terms <= each.limit / unit
    return program, chosen


def _unit(constraint: Constraint) -> float:
    return max((abs(k) for k in constraint.coefficients.values()), default=1.0) or 1.0


def _checked(
    found: _Found,
    constraints: Sequence[Constraint],
    values: Mapping[At, float],
    scale: float,
    params: SolveParams,
    known_bound: float | None,
) -> MasterResult:
    """Return the part of an answer that was checked."""
    if found.choice is None:
        if found.complete:
            return MasterResult(None, -math.inf, optimal=True, infeasible=True)
        return MasterResult(None, math.inf, optimal=False)
    for each in constraints:
        total = sum(each.coefficients.get(at, 0.0) for at in found.choice.items())
        if total > each.limit + _TRUE_TO * _unit(each):
            if not found.complete:  # what was left behind when it was stopped is no choice
                return MasterResult(None, math.inf, optimal=False)
            raise LibraError(
                f"{params.solver.value} gave a choice that breaks its own constraints",
                got=f"{total:g} in {each.name}",
                allowed=f"at most {each.limit:g}",
                way_out=f"use --solver {SolverBackend.CP_SAT.value}",
            )
    value = sum(values.get(at, 0.0) for at in found.choice.items())
    bound = -found.bound * scale if math.isfinite(found.bound) else math.inf
    bound = max(value, min(bound, math.inf if known_bound is None else known_bound))
    bound += _BOUND_TRUE_TO * max(1.0, abs(bound)) if math.isfinite(bound) else 0.0
    near = bound - value <= (params.gap + 2 * _BOUND_TRUE_TO) * max(1.0, abs(value))
    return MasterResult(found.choice, bound, optimal=near)


def _choice_of(model: _Model) -> Choice:
    """Read the candidates whose variables are 1 (as a solver's tolerance has it)."""
    return {t: c for (t, c), x in model.chosen.items() if x.varValue is not None and x.varValue > _HALF}


# ---------------------------------------------------------------- HiGHS


class _HintedHighs(pulp.HiGHS):  # type: ignore[misc]
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


def _by_highs(model: _Model, hint: Choice | None, report: _Report) -> _Found:
    """Solve with HiGHS in this process; objective and bound are reported as they improve."""

    def look(kind: object, message: str, out: Any, into: Any, data: object) -> None:
        report(out.mip_primal_bound, out.mip_dual_bound)
        if model.params.stopped:
            into.user_interrupt = True

    solver = _HintedHighs(
        msg=False,
        output_flag=False,  # PuLP 4's `msg` lets a banner through
        gapRel=model.params.gap,
        gapAbs=_TOLERANCE,
        timeLimit=model.limit_s,
        threads=max(1, model.params.workers),
        callbackTuple=(look, None),
        callbacksToActivate=[highspy.cb.HighsCallbackType.kCallbackMipInterrupt],
        random_seed=model.params.seed,
        mip_feasibility_tolerance=_TOLERANCE,
        primal_feasibility_tolerance=_TOLERANCE,
    )
    if hint is not None:
        solver.start = {x.name: float(hint.get(t) == c) for (t, c), x in model.chosen.items()}
    model.program.solve(solver)
    highs = model.program.solverModel
    info = highs.getInfo()
    choice = _choice_of(model) if info.primal_solution_status == _FEASIBLE else None
    bound = info.mip_dual_bound
    return _Found(choice, bound if math.isfinite(bound) else -math.inf, highs.getModelStatus() in _ENDED)


# ---------------------------------------------------------------- CBC


def _by_cbc(model: _Model, path: str) -> _Found:
    """Solve with CBC as a child process on one thread; several are what has hung.

    PuLP 3 calls a time limit "Optimal", and PuLP 4 "Infeasible" when CBC ran out of time before it had
    looked: what it says counts only if time was left.
    """
    with TemporaryDirectory(prefix="libra-plan-cbc-") as folder:
        solver = pulp.COIN_CMD(
            path=path,
            msg=False,
            gapRel=model.params.gap,
            gapAbs=_TOLERANCE,
            timeLimit=model.limit_s,
            options=[f"randomCbcSeed {model.params.seed}"],
        )
        solver.tmpDir = folder  # its command line then names the folder, which nothing else does
        optimal, waited_s = _watched(model, solver, folder)
    complete = waited_s < _EARLY * model.limit_s
    read = all(x.varValue is not None for x in model.chosen.values())
    if optimal is None or not read or (complete and not optimal):
        return _Found(None, -math.inf, complete=complete and optimal is not None)
    choice = _choice_of(model)
    objective = float(pulp.value(model.program.objective) or 0.0)
    bound = objective - model.params.gap * abs(objective) - _TOLERANCE if complete and optimal else -math.inf
    return _Found(choice, bound, complete)


def _watched(model: _Model, solver: object, folder: str) -> tuple[bool | None, float]:
    """Run CBC in a thread; end the child when somebody asks, and kill it when it does not end.

    Returns whether CBC says that it ended with an optimum, None where it crashed or was killed, and the
    seconds it took; those of a run that was stopped are the whole limit.
    """
    failures: list[BaseException] = []
    outcomes: list[bool] = []

    def work() -> None:
        try:
            ended = model.program.solve(solver)
            outcome = model.program.sol_status if hasattr(model.program, "sol_status") else ended.status
            outcomes.append(outcome == _OPTIMAL)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    waited_s, asked = 0.0, False
    while thread.is_alive():
        thread.join(_POLL_S)
        waited_s += _POLL_S
        if not asked and model.params.stopped:
            asked, waited_s = True, model.limit_s
            _signal(folder, signal.SIGINT)  # it then writes the best it has
        if waited_s > model.limit_s + _GRACE_S:
            _signal(folder, signal.SIGKILL)
    unexpected = [failure for failure in failures if not isinstance(failure, pulp.PulpSolverError)]
    if unexpected:
        raise unexpected[0]
    return (outcomes[0] if outcomes else None), waited_s


def _signal(folder: str, number: int) -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(word.startswith(folder) for word in child.cmdline()):
                child.send_signal(number)
