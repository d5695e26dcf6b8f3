"""HiGHS and CBC against CP-SAT on the same problems, and each pitfall of PuLP that has bitten somebody."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import psutil
import pulp
import pytest
from live import words_of
from random_problems import random_problem, with_running

from libra_plan.errors import InputError, LibraError
from libra_plan.planner.optimize import milp
from libra_plan.planner.optimize.backends import MasterResult, maximise
from libra_plan.planner.optimize.base import SolveParams, SolverBackend
from libra_plan.planner.optimize.constraints import Constraint
from libra_plan.planner.optimize.interrupter import Interrupter
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Policy, Problem
from libra_plan.planner.tables import table_cluster, table_task
from libra_plan.planner.verify import violations_of

NEAR = 2e-6  # CP-SAT counts worth in millionths of the largest
HERE = milp.available_backends()
OTHERS = [
    pytest.param(backend, marks=pytest.mark.skipif(backend not in HERE, reason=f"no {backend.value} here"))
    for backend in (SolverBackend.HIGHS, SolverBackend.CBC)
]


def params(backend: SolverBackend, **more: object) -> SolveParams:
    return replace(SolveParams(gap=0.0, time_limit_s=20.0, solver=backend), **more)


def objective(problem: Problem, backend: SolverBackend) -> float | None:
    plan = solve_problem(problem, params(backend)).plan
    if plan is None:
        return None
    assert violations_of(problem, plan) == []
    assert dict(plan.certificate.bounds)[backend.value] >= plan.certificate.objective * (1 - 1e-9)
    return plan.certificate.objective


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("policy", [Policy.THROUGHPUT, Policy.MAX_MIN])
def test_all_solvers_find_the_same_optimum(backend: SolverBackend, policy: Policy) -> None:
    """Two solvers that share no code and agree are the best evidence for both."""
    for seed in range(700, 725):
        problem = random_problem(seed, policy)
        first = objective(problem, SolverBackend.CP_SAT)
        second = objective(problem, backend)
        assert (first is None) == (second is None), seed
        if first is not None:
            assert second == pytest.approx(first, rel=NEAR, abs=NEAR), seed


@pytest.mark.parametrize("backend", OTHERS)
def test_all_solvers_move_as_few_tasks(backend: SolverBackend) -> None:
    """The pass for fewest moves must work with every solver: its demand on the worth is a tight row."""
    compared = 0
    for seed in range(700, 710):
        problem = random_problem(seed)
        plan = solve_problem(problem, params(SolverBackend.CP_SAT)).plan
        if plan is None:
            continue
        again, best = (
            solve_problem(with_running(problem, plan, seed), params(each)).plan
            for each in (backend, SolverBackend.CP_SAT)
        )
        moved = [None if each is None else sum(task.moved for task in each.running) for each in (again, best)]
        assert moved[0] == moved[1], seed
        compared += 1
    assert compared >= 5


# ---------------------------------------------------------------- a model too hard to finish


def hard() -> tuple[list, list[Constraint], dict]:
    """Make a knapsack in ten dimensions that nobody proves in seconds."""
    rng = np.random.default_rng(0)
    tasks = candidates_of(
        problem := Problem(
            table_cluster(8), tuple(table_task(f"t{n}", 1.0, {"r": {1: 9.0, 2: 5.0}}) for n in range(150))
        ),
        problem,
    )
    ats = [(t, c) for t, each in enumerate(tasks) for c in range(len(each.candidates))]
    rows = [Constraint(f"one:{t}", {at: 1.0 for at in ats if at[0] == t}, 1.0) for t in range(len(tasks))]
    for number in range(10):
        taken = dict(zip(ats, map(float, rng.integers(1, 1000, len(ats))), strict=True))
        rows.append(Constraint(f"knapsack:{number}", taken, sum(taken.values()) / 6))
    return list(tasks), rows, dict(zip(ats, map(float, rng.integers(1, 1000, len(ats))), strict=True))


def best_choice(backend: SolverBackend, limit_s: float = 1.0, **more: object) -> tuple[MasterResult, float]:
    tasks, rows, values = hard()
    result = maximise(tasks, rows, values, params(backend, **more), limit_s=limit_s)
    return result, sum(values[at] for at in (result.choice or {}).items())


@pytest.mark.parametrize("backend", OTHERS)
def test_a_time_limit_is_not_called_optimal(backend: SolverBackend) -> None:
    """PuLP 3 says "Optimal" when the limit struck: believed, every certificate would be false."""
    result, value = best_choice(backend)
    assert result.choice
    assert not result.optimal
    assert result.bound > value * 1.0001


@pytest.mark.parametrize("backend", OTHERS)
def test_the_bound_is_on_the_right_side(backend: SolverBackend) -> None:
    """The dual bound comes back negated when maximising: it would sit below every plan, or be no bound."""
    tasks, rows, values = hard()
    rows = rows[: len(tasks) + 1]
    exact = maximise(tasks, rows, values, params(SolverBackend.CP_SAT), limit_s=20.0)
    best = sum(values[at] for at in exact.choice.items())
    loose = maximise(tasks, rows, values, params(backend, gap=0.02), limit_s=20.0)
    assert best <= loose.bound <= best * 1.03


@pytest.mark.parametrize("backend", OTHERS)
def test_whoever_looks_on_can_end_the_search(backend: SolverBackend) -> None:
    """Ctrl-C must give the incumbent, whichever solver runs."""
    watch = Interrupter()
    threading.Timer(1.0, watch.stop).start()
    result, value = best_choice(backend, limit_s=120.0, interrupter=watch)
    assert result.choice
    assert not result.optimal
    assert result.bound > value


@pytest.mark.parametrize("backend", OTHERS)
def test_a_limit_too_short_for_anything_proves_nothing(backend: SolverBackend) -> None:
    """PuLP 4 calls a CBC that ran out of time before its first look infeasible."""
    for limit_s in (0.001, 0.01, 0.02):
        assert not best_choice(backend, limit_s=limit_s)[0].infeasible


def test_highs_starts_from_the_hint() -> None:
    """PuLP 3 cannot pass a start on; without it a short limit would lose what is known already."""
    tasks, rows, values = hard()
    good, value = best_choice(SolverBackend.HIGHS, limit_s=2.0)
    result = maximise(tasks, rows, values, params(SolverBackend.HIGHS), limit_s=0.1, hint=good.choice)
    assert sum(values[at] for at in result.choice.items()) >= value


@pytest.mark.parametrize("backend", OTHERS)
def test_what_cannot_be_is_said_to_be_impossible(backend: SolverBackend) -> None:
    """Max-min is decided on proofs of infeasibility, the empty row's among them."""
    tasks, rows, _ = hard()
    demand = Constraint("all", dict.fromkeys(rows[-1].coefficients, -1.0), -float(len(tasks)))
    assert maximise(tasks, [*rows, demand], {}, params(backend), limit_s=20.0).infeasible
    assert maximise(tasks, [Constraint("never", {}, -1.0)], {}, params(backend), limit_s=20.0).infeasible


# ---------------------------------------------------------------- what cannot be believed


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none_are_refused_by_name(bad: float) -> None:
    """HiGHS has called a row with NaN optimal at 0, and then crashed."""
    tasks, rows, values = hard()
    spoilt = replace(rows[-10], limit=bad)
    with pytest.raises(RuntimeError, match="constraint knapsack:0 "):
        maximise(tasks, [*rows[:-10], spoilt], values, params(SolverBackend.HIGHS), limit_s=1.0)
    with pytest.raises(RuntimeError, match="candidate 1 of task 0"):
        maximise(tasks, rows, {**values, (0, 1): bad}, params(SolverBackend.HIGHS), limit_s=1.0)


def test_a_choice_that_breaks_a_row_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """CBC has printed Optimal over "Postprocessed model is infeasible": we add the rows up ourselves."""
    everything = dict.fromkeys(range(150), 0)
    monkeypatch.setattr(milp, "_by_highs", lambda *_: milp._Found(everything, -1.0, True))
    with pytest.raises(
        LibraError, match=r"breaks its own constraints; got .* in knapsack:0; allowed: at most"
    ):
        best_choice(SolverBackend.HIGHS)


def test_a_solver_that_is_not_there_is_named_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binary without the x bit, or PuLP 4 without CBC: the user must learn what else to take."""
    monkeypatch.setattr(pulp, "listSolvers", lambda onlyAvailable=False: ["HiGHS", "CPSAT"])
    with pytest.raises(InputError) as caught:
        best_choice(SolverBackend.CBC)
    assert caught.value.allowed == "cp-sat, highs"
    assert "cbc is not available" in caught.value.message


def test_plans_that_must_repeat_are_left_to_cp_sat() -> None:
    """HiGHS and CBC stop by the clock, so they cannot promise the same plan bit for bit."""
    with pytest.raises(InputError, match="--deterministic"):
        best_choice(SolverBackend.HIGHS, deterministic=True)


def test_a_cbc_that_hangs_is_killed(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CBC has hung for ever now and then; a solve must end whatever its child does."""
    program = tmp_path / "cbc"
    program.write_text("#!/usr/bin/env python3\nimport time\ntime.sleep(600)\n")
    program.chmod(0o755)
    monkeypatch.setattr(milp, "available_backends", lambda: {SolverBackend.CBC: str(program)})
    monkeypatch.setattr(milp, "_GRACE_S", 0.3)
    result, _ = best_choice(SolverBackend.CBC, limit_s=0.2)
    assert (result.choice, result.infeasible) == (None, False)
    assert not [words for words in words_of(psutil.Process().children()) if str(program) in words]
