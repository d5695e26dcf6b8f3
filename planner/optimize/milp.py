"""The master as a mixed-integer program, by HiGHS or CBC through PuLP: a check on CP-SAT.

PuLP 3 and 4 tell outcomes differently, and PuLP 3 calls a time limit "Optimal": what a solver found
is read from the solver itself (`milp_highs`, `milp_cbc`). The model always *minimises* minus the value,
because PuLP 3 flips the sign of a maximisation before HiGHS sees it and leaves the bound flipped.
What comes back is trusted only after its rows have been added up again here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from libra_plan.errors import InputError, LibraError
from libra_plan.planner.optimize.backends import MasterResult
from libra_plan.planner.optimize.base import Backend, SolveParams
from libra_plan.planner.optimize.constraints import At, Choice, Row
from libra_plan.planner.optimize.objective import TaskCandidates

if TYPE_CHECKING:
    from libra_plan.planner.optimize.interrupter import Watch

__all__ = ["Answer", "Question", "available_backends", "maximise"]

_TRUE_TO = 1e-6  # of a row's largest coefficient: a solver's tolerance, with room
_BOUND_TRUE_TO = 1e-9  # relative, as in lp.py
_HALF = 0.5


@dataclass(frozen=True, slots=True)
class Question:
    """A model ready to be solved: minimise. `report` is told (objective, bound) of the model."""

    model: Any
    chosen: Mapping[At, Any]
    gap: float
    limit_s: float
    seed: int
    threads: int
    hint: Choice | None
    watch: Watch | None
    report: Callable[[float | None, float | None], None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a solver says: the candidates it chose (None: nothing found) and the model's lower bound.

    `complete`: it ended by itself, so that finding nothing means that there is nothing.
    """

    choice: Choice | None
    bound: float
    complete: bool


def available_backends() -> dict[Backend, str]:
    """Map every solver that can run here to the path of its program (empty: none of its own).

    PuLP is asked. PuLP 3 brings a CBC, under a name that is deprecated; PuLP 4 takes the one on PATH.
    """
    import pulp

    ready = pulp.listSolvers(onlyAvailable=True)
    found = {Backend.CP_SAT: ""}
    if "HiGHS" in ready:
        found[Backend.HIGHS] = ""
    if "COIN_CMD" in ready:
        found[Backend.CBC] = str(pulp.COIN_CMD(msg=False).path)
    elif "PULP_CBC_CMD" in ready:
        found[Backend.CBC] = str(pulp.PULP_CBC_CMD.pulp_cbc_path)
    return found


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
    program = _program(params)
    _refuse_non_numbers(rows, values)
    if any(not row.coefficients and row.limit < 0 for row in rows):
        return MasterResult(None, -math.inf, optimal=True, infeasible=True)
    scale = max((abs(value) for value in values.values()), default=0.0) or 1.0
    report = params.watch.report if params.watch is not None and reported else _nobody
    model, chosen = _model(tasks, rows, values, scale)
    question = Question(
        model,
        chosen,
        params.gap,
        limit_s,
        params.seed,
        params.workers,
        hint,
        params.watch,
        lambda value, bound: report(_back(value, scale), _back(bound, scale)),
    )
    return _judged(_solver(params.solver, program)(question), rows, values, scale, params, known_bound)


def _nobody(objective: float | None, bound: float | None) -> None:
    """Tell nobody."""


def _back(value: float | None, scale: float) -> float | None:
    return None if value is None or not math.isfinite(value) else -value * scale


def _solver(backend: Backend, program: str) -> Callable[[Question], Answer]:
    if backend is Backend.HIGHS:
        from libra_plan.planner.optimize.milp_highs import ask_highs

        return ask_highs
    from libra_plan.planner.optimize.milp_cbc import ask_cbc

    return lambda question: ask_cbc(question, program)


def _program(params: SolveParams) -> str:
    """Find the solver, or say what else could be used."""
    ready = available_backends()
    if params.solver not in ready:
        raise InputError(
            f"the solver {params.solver.value} is not available here",
            got=f"--solver {params.solver.value}",
            allowed=", ".join(backend.value for backend in ready),
            way_out=(
                "install cbc and put it on PATH, or take another one"
                if params.solver is Backend.CBC
                else "install highspy, or take another one"
            ),
        )
    if params.deterministic:
        raise InputError(
            "only cp-sat can count its work, so only its plans are the same on every run",
            got=f"--deterministic with --solver {params.solver.value}",
            allowed=Backend.CP_SAT.value,
            way_out="leave one of the two out",
        )
    return ready[params.solver]


def _refuse_non_numbers(rows: Sequence[Row], values: Mapping[At, float]) -> None:
    """Refuse what is not finite: HiGHS has called a row with NaN optimal (coin-or/pulp 855)."""
    for row in rows:
        if not all(map(math.isfinite, (row.limit, *row.coefficients.values()))):
            raise RuntimeError(f"row {row.name} of the master has a number that is not finite")
    for at, value in values.items():
        if not math.isfinite(value):
            raise RuntimeError(f"the value of candidate {at[1]} of task {at[0]} is not finite: {value}")


def _model(
    tasks: Sequence[TaskCandidates], rows: Sequence[Row], values: Mapping[At, float], scale: float
) -> tuple[Any, dict[At, Any]]:
    """Write the model; rows are divided by their largest coefficient, so that tolerances mean something."""
    import pulp

    model = pulp.LpProblem("master", pulp.LpMinimize)
    chosen = {
        (t, c): model.add_variable(f"x_{t}_{c}", 0, 1, pulp.LpInteger)
        for t, each in enumerate(tasks)
        for c in range(len(each.candidates))
    }
    model += pulp.lpSum(-value / scale * chosen[at] for at, value in values.items())
    for row in rows:
        if row.coefficients:
            unit = _unit(row)
            terms = pulp.lpSum(k / unit * chosen[at] for at, k in row.coefficients.items())
            model += terms <= row.limit / unit
    return model, chosen


def _unit(row: Row) -> float:
    return max((abs(k) for k in row.coefficients.values()), default=1.0) or 1.0


def _judged(
    answer: Answer,
    rows: Sequence[Row],
    values: Mapping[At, float],
    scale: float,
    params: SolveParams,
    known_bound: float | None,
) -> MasterResult:
    """Believe an answer only as far as it can be checked."""
    if answer.choice is None:
        if answer.complete:
            return MasterResult(None, -math.inf, optimal=True, infeasible=True)
        return MasterResult(None, math.inf, optimal=False)
    for row in rows:
        total = sum(row.coefficients.get(at, 0.0) for at in answer.choice.items())
        if total > row.limit + _TRUE_TO * _unit(row):
            raise LibraError(
                f"{params.solver.value} gave a choice that breaks its own rows",
                got=f"{total:g} in row {row.name}",
                allowed=f"at most {row.limit:g}",
                way_out=f"use --solver {Backend.CP_SAT.value}",
            )
    value = sum(values.get(at, 0.0) for at in answer.choice.items())
    bound = -answer.bound * scale if math.isfinite(answer.bound) else math.inf
    bound = max(value, min(bound, math.inf if known_bound is None else known_bound))
    bound += _BOUND_TRUE_TO * max(1.0, abs(bound)) if math.isfinite(bound) else 0.0
    near = bound - value <= (params.gap + 2 * _BOUND_TRUE_TO) * max(1.0, abs(value))
    return MasterResult(answer.choice, bound, optimal=near)


def choice_of(chosen: Mapping[At, Any]) -> Choice:
    """Read the candidates whose variables are 1 (as a solver's tolerance has it)."""
    return {t: c for (t, c), x in chosen.items() if x.varValue is not None and x.varValue > _HALF}
