"""The master by CP-SAT: choose at most one candidate per task, exactly.

CP-SAT takes integers. Worths are scaled so that the largest is near `_TARGET` and every row stays
under 2^31 (Boolean sums past that have proven wrong optima, or-tools 5293); the bound handed back
includes all that rounding can hide. Values are read only after OPTIMAL or FEASIBLE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from libra_plan.planner.solvers.base import SolveParams
from libra_plan.planner.solvers.rows import Choice, Row
from libra_plan.planner.solvers.worth import Candidate, TaskCandidates

__all__ = ["MasterResult", "choose_best", "choose_fewest_moves", "choose_worst_best"]

_TARGET = 1_000_000
_ROW_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MasterResult:
    """The chosen candidates and what no choice can exceed (in worths, rounding included).

    `choice` is None when nothing was found in time; `infeasible` when nothing exists.
    """

    choice: Choice | None
    bound: float
    optimal: bool
    infeasible: bool = False


@dataclass(frozen=True, slots=True)
class _Model:
    model: cp_model.CpModel
    chosen: dict[tuple[int, int], cp_model.IntVar]


def choose_best(
    tasks: Sequence[TaskCandidates],
    rows: Sequence[Row],
    params: SolveParams,
    *,
    limit_s: float,
    hint: Choice | None = None,
    floors: Mapping[int, float] | None = None,
) -> MasterResult:
    """Maximise Σ worth; with `floors`, task t must reach normalised throughput floors[t]."""
    built = _build(tasks, rows)
    scale = _scale([entry.worth for each in tasks for entry in each.candidates], len(tasks))
    worth = {at: round(_entry(tasks, at).worth * scale) for at in built.chosen}
    _add_floors(built, tasks, floors or {})
    built.model.Maximize(sum(worth[at] * x for at, x in built.chosen.items()))
    return _run(built, params, limit_s, hint, lambda value: (value + 0.5 * len(tasks)) / scale)


def choose_worst_best(
    tasks: Sequence[TaskCandidates],
    rows: Sequence[Row],
    params: SolveParams,
    *,
    limit_s: float,
    among: Sequence[int],
    hint: Choice | None = None,
    floors: Mapping[int, float] | None = None,
) -> MasterResult:
    """Maximise the smallest normalised throughput of tasks `among`, floors holding for others."""
    built = _build(tasks, rows)
    scale = _scale([entry.normalised for each in tasks for entry in each.candidates], 1)
    _add_floors(built, tasks, floors or {})
    level = built.model.NewIntVar(0, 2 * _TARGET, "level")
    for t in among:
        reach = [
            math.floor(entry.normalised * scale) * built.chosen[t, c]
            for c, entry in enumerate(tasks[t].candidates)
        ]
        built.model.Add(level <= sum(reach))
    built.model.Maximize(level)
    return _run(built, params, limit_s, hint, lambda value: (value + 1.0) / scale)


def choose_fewest_moves(
    tasks: Sequence[TaskCandidates],
    rows: Sequence[Row],
    params: SolveParams,
    *,
    limit_s: float,
    at_least: float,
    hint: Choice,
    floors: Mapping[int, float] | None = None,
) -> MasterResult:
    """Among choices worth `at_least`, move the least state; then take the first candidates.

    The last term only breaks ties, so that equal plans come out the same on every run.
    """
    built = _build(tasks, rows)
    scale = _scale([entry.worth for each in tasks for entry in each.candidates], len(tasks))
    _add_floors(built, tasks, floors or {})
    # Rounded up, so a choice of exactly `at_least` always passes; each task may add one unit.
    worth = {at: math.ceil(_entry(tasks, at).worth * scale) for at in built.chosen}
    built.model.Add(sum(worth[at] * x for at, x in built.chosen.items()) >= math.floor(at_least * scale))
    moved = {at: _entry(tasks, at).moved_mib for at in built.chosen}
    unit = max(1.0, sum(moved.values()) / _TARGET)
    most = max((len(each.candidates) for each in tasks), default=1)
    tie = 1 + most * len(tasks)
    cost = {at: tie * math.ceil(moved[at] / unit) + at[1] for at in built.chosen}
    cost = {at: min(value, _ROW_LIMIT // max(1, len(tasks))) for at, value in cost.items()}
    running = [t for t, each in enumerate(tasks) if each.running]
    stop = max(cost.values(), default=1)  # stopping a running task is a move as well
    built.model.Minimize(
        sum(cost[at] * x for at, x in built.chosen.items())
        + sum(
            stop * (1 - sum(built.chosen[t, c] for c in range(len(tasks[t].candidates)))) for t in running
        )
    )
    return _run(built, params, limit_s, hint, lambda value: value)


def _entry(tasks: Sequence[TaskCandidates], at: tuple[int, int]) -> Candidate:
    return tasks[at[0]].candidates[at[1]]


def _scale(values: Sequence[float], terms: int) -> float:
    largest = max((abs(value) for value in values), default=1.0) or 1.0
    return min(_TARGET, _ROW_LIMIT / 4 / max(1, terms)) / largest


def _build(tasks: Sequence[TaskCandidates], rows: Sequence[Row]) -> _Model:
    model = cp_model.CpModel()
    chosen = {
        (t, c): model.NewBoolVar(f"x_{t}_{c}")
        for t, each in enumerate(tasks)
        for c in range(len(each.candidates))
    }
    for row in rows:
        if row.coefficients:
            coefficients, limit = _integers(row)
            model.Add(sum(k * chosen[at] for at, k in coefficients.items()) <= limit)
    return _Model(model, chosen)


def _integers(row: Row) -> tuple[dict[tuple[int, int], int], int]:
    """Scale a row to integers without ever letting more in: needs are rounded down, limits up.

    The row stays necessary; placement checks cores and memory again, node by node.
    """
    if all(float(k).is_integer() for k in row.coefficients.values()):
        return {at: int(k) for at, k in row.coefficients.items()}, math.floor(row.limit + 1e-9)
    unit = max(1e-3, sum(row.coefficients.values()) / (_ROW_LIMIT / 2))
    return {at: math.floor(k / unit) for at, k in row.coefficients.items()}, math.ceil(row.limit / unit)


def _add_floors(built: _Model, tasks: Sequence[TaskCandidates], floors: Mapping[int, float]) -> None:
    """Demand that a task takes one of the candidates that reach its floor."""
    for t, floor in floors.items():
        reaching = [
            built.chosen[t, c]
            for c, entry in enumerate(tasks[t].candidates)
            if entry.normalised >= floor * (1 - 1e-12)
        ]
        built.model.Add(sum(reaching) >= 1)


def _run(
    built: _Model,
    params: SolveParams,
    limit_s: float,
    hint: Choice | None,
    to_bound: Callable[[float], float],
) -> MasterResult:
    if hint is not None:
        for (t, c), x in built.chosen.items():
            built.model.AddHint(x, int(hint.get(t) == c))
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = params.seed
    solver.parameters.num_workers = 1 if params.deterministic else params.workers
    if params.deterministic:
        solver.parameters.max_deterministic_time = limit_s
    else:
        solver.parameters.max_time_in_seconds = limit_s
    status = solver.Solve(built.model)
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"the master model is invalid: {built.model.Validate()}")
    if status == cp_model.INFEASIBLE:
        return MasterResult(None, -math.inf, optimal=True, infeasible=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return MasterResult(None, math.inf, optimal=False)
    choice = {t: c for (t, c), x in built.chosen.items() if solver.Value(x)}
    return MasterResult(choice, to_bound(solver.BestObjectiveBound()), status == cp_model.OPTIMAL)
