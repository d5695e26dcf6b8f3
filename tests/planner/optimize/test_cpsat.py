"""CP-SAT as the master's solver: every choice of small masters, rounding, hints, limits and stops."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from libra_plan.planner.optimize.base import SolveParams, SolverWork
from libra_plan.planner.optimize.constraints import At, Choice, Constraint
from libra_plan.planner.optimize.cpsat import _integers, solve_cpsat
from libra_plan.planner.optimize.interrupter import Interrupter
from libra_plan.planner.optimize.objective import TaskCandidates, candidates_of
from libra_plan.planner.problem import Problem
from libra_plan.planner.tables import table_cluster, table_task

EXACT = SolveParams(gap=0.0, deterministic=True)


def _tasks(number: int) -> list[TaskCandidates]:
    """Return tasks with three configurations each."""
    made = tuple(table_task(f"t{t}", 1.0, {"r": {1: 4.0, 2: 3.0, 3: 2.0}}) for t in range(number))
    problem = Problem(table_cluster(4), made)
    found = candidates_of(problem, problem)
    assert all(len(each.candidates) == 3 for each in found)
    return found


def _once(tasks: int) -> list[Constraint]:
    return [Constraint(f"one:t{t}", {(t, c): 1.0 for c in range(3)}, 1.0) for t in range(tasks)]


def _best(rows: list[Constraint], values: dict[At, float], tasks: int) -> float | None:
    """Return the value of the best choice of all, None when none keeps the constraints."""
    best = None
    for way in product((None, 0, 1, 2), repeat=tasks):
        chosen = {(t, c) for t, c in enumerate(way) if c is not None}
        if all(sum(k for at, k in row.coefficients.items() if at in chosen) <= row.limit for row in rows):
            value = sum(values.get(at, 0.0) for at in chosen)
            best = value if best is None else max(best, value)
    return best


@pytest.mark.parametrize("seed", range(8))
def test_it_finds_the_best_of_all_choices_and_bounds_it(seed: int) -> None:
    """Values below 0 too, and a demand that some seeds cannot keep."""
    rng = np.random.default_rng(seed)
    at = [(t, c) for t in range(3) for c in range(3)]
    values = {each: float(rng.uniform(-1.0, 4.0)) for each in at}
    rows = _once(3)
    rows.append(Constraint("room", {each: float(rng.integers(1, 5)) for each in at}, 6.0))
    rows.append(Constraint("least", dict.fromkeys(at, -1.0), -float(rng.integers(0, 4))))
    found = solve_cpsat(_tasks(3), rows, values, EXACT, limit_s=10.0)
    best = _best(rows, values, 3)
    if best is None:
        assert found.infeasible
        assert found.choice is None
        return
    assert found.choice is not None
    assert found.optimal
    value = sum(values[each] for each in found.choice.items())
    assert value == pytest.approx(best, abs=1e-5)
    assert best <= found.bound <= best + 1e-4


def test_a_known_bound_cuts_no_optimum_off() -> None:
    """The LP's bound may equal the optimum; values of thirds are rounded in both."""
    values = {(0, 0): 1 / 3, (1, 1): 2 / 3}
    found = solve_cpsat(_tasks(2), _once(2), values, EXACT, limit_s=10.0, known_bound=1.0)
    assert found.choice is not None
    assert {*found.choice.items()} >= {*values}


def test_without_values_any_choice_will_do() -> None:
    """What is asked for then is a choice that keeps the constraints."""
    demand = Constraint("run", {(1, 2): -1.0}, -1.0)
    found = solve_cpsat(_tasks(2), [*_once(2), demand], {}, EXACT, limit_s=10.0)
    assert found.choice is not None
    assert found.choice[1] == 2


def test_work_adds_up_and_a_stopped_search_answers_with_its_hint() -> None:
    """The limit of a deterministic solve is counted in this work."""
    interrupter, work = Interrupter(), SolverWork()
    interrupter.stop()
    params = SolveParams(gap=0.0, deterministic=True, interrupter=interrupter, work=work)
    hint: Choice = {0: 1}
    found = solve_cpsat(_tasks(1), _once(1), {(0, 1): 1.0}, params, limit_s=10.0, hint=hint)
    assert found.choice == hint
    assert 0.0 < work.done_s < 1.0


def test_progress_is_told_in_the_values_asked_for() -> None:
    """CP-SAT counts in units of its own."""
    interrupter = Interrupter()
    params = SolveParams(gap=0.0, deterministic=True, interrupter=interrupter)
    rows = [*_once(2), Constraint("room", {(0, 0): 1.0, (1, 0): 1.0}, 1.0)]
    solve_cpsat(_tasks(2), rows, {(0, 0): 250.0, (1, 0): 125.0}, params, limit_s=10.0, reported=True)
    assert interrupter.last is not None
    assert interrupter.last.objective == pytest.approx(250.0, rel=1e-4)


# ---------------------------------------------------------------- rounding


@pytest.mark.parametrize("seed", range(20))
def test_rounding_never_cuts_a_choice_off(seed: int) -> None:
    """A choice that keeps a constraint in fractions keeps it in integers as well."""
    rng = np.random.default_rng(seed)
    amounts = {(t, 0): float(rng.uniform(-2.0, 9.0)) for t in range(6)}
    row = Constraint("any", amounts, float(rng.uniform(0.0, 12.0)))
    whole, limit = _integers(row)
    for way in product((False, True), repeat=6):
        taken = [(t, 0) for t in range(6) if way[t]]
        if math.fsum(amounts[at] for at in taken) <= row.limit:
            assert sum(whole[at] for at in taken) <= limit
    assert sum(map(abs, whole.values())) < 2**31


def test_a_strict_constraint_is_never_exceeded_and_may_be_met_exactly() -> None:
    """Three times 0.1 is 0.3 for whoever pays, though not in floating point."""
    amounts = {(t, 0): 0.1 for t in range(4)}
    whole, limit = _integers(Constraint("budget", amounts, 0.3, strict=True))
    assert 3 * whole[0, 0] <= limit < 4 * whole[0, 0]
    whole, limit = _integers(Constraint("budget", amounts, 0.299, strict=True))
    assert 2 * whole[0, 0] <= limit < 3 * whole[0, 0]


def test_whole_amounts_stay_as_they_are() -> None:
    """Their limit is rounded down, with room for a sum of floats just below it."""
    assert _integers(Constraint("gpus", {(0, 0): 3.0}, 8.5)) == ({(0, 0): 3}, 8)
    assert _integers(Constraint("gpus", {(0, 0): 3.0}, 8 - 1e-12)) == ({(0, 0): 3}, 8)
