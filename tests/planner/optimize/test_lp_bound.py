"""What dual prices prove, added up anew from every configuration, and both solvers in one process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from random_problems import random_problem, with_running

from libra_plan.planner.optimize import backends, lp_bound
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.constraints import base_constraints, no_host_room
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Policy, Problem
from libra_plan.planner.tables import table_cluster, table_task


def _proven(problem: Problem, duals: Mapping[str, float], *, levels: bool = False) -> float:
    """Add up limits at prices, and the best of each task beside them, without the code that is tested."""
    tasks = candidates_of(problem, problem)
    constraints = base_constraints(tasks, problem.cluster)
    without_room = no_host_room(tasks, problem.cluster)
    constraints += [] if without_room is None else [without_room]
    known = {each.name: each for each in constraints}
    total = sum(known[name].limit * price for name, price in duals.items() if not name.startswith("level:"))
    for t, each in enumerate(tasks):
        best = 0.0
        for c, entry in enumerate(each.candidates):
            value = entry.normalised * duals.get(f"level:{each.task.id}", 0.0) if levels else entry.value
            cost = sum(
                price * known[name].coefficients.get((t, c), 0.0)
                for name, price in duals.items()
                if name in known
            )
            best = max(best, value - cost)
        total += best
    return total


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_the_bound_told_is_what_its_duals_prove(
    first: int, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to take the bound's word: everything it is made of is in the certificate."""
    monkeypatch.setattr(backends, "MANY", 0 if many else 2_000)
    proven = 0
    for seed in range(first, first + 10):
        problem = random_problem(seed)
        plan = solve_problem(problem, SolveParams(gap=1e-6)).plan
        for each, found in ((problem, plan), *_running(problem, plan, seed)):
            if found is None:
                continue
            told = dict(found.certificate.bounds)["lp"]
            assert all(price >= 0.0 for _, price in found.certificate.duals)
            assert _proven(each, dict(found.certificate.duals)) == pytest.approx(told, rel=1e-8, abs=1e-8)
            proven += bool(found.certificate.duals)
    assert proven >= 3


def _running(problem: Problem, plan, seed: int):
    if plan is not None:
        changed = with_running(problem, plan, seed)
        yield changed, solve_problem(changed, SolveParams(gap=1e-6)).plan


@pytest.mark.parametrize("seed", range(20))
def test_the_level_of_the_worst_task_is_proven_alike(seed: int) -> None:
    """Under max-min the price of a task's level stands in its value, and these prices add up to 1."""
    problem = random_problem(seed, Policy.MAX_MIN)
    plan = solve_problem(problem, SolveParams(gap=1e-6)).plan
    if plan is None:
        return
    duals = dict(plan.certificate.duals)
    told = dict(plan.certificate.bounds)["lp"]
    levels = [price for name, price in duals.items() if name.startswith("level:")]
    assert told >= plan.certificate.objective * (1 - 1e-9)
    if levels:
        assert sum(levels) == pytest.approx(1.0)
        assert _proven(problem, duals, levels=True) == pytest.approx(told, rel=1e-8, abs=1e-8)


def _master(seed: int) -> lp_bound.Master:
    rng = np.random.default_rng(seed)
    number = 40 * 50
    demand = rng.integers(0, 9, (number, 3)).astype(float)
    value = (1.0 + demand.sum(axis=1)) ** 0.7 * rng.uniform(0.8, 1.2, number)
    column, row = np.nonzero(demand)
    limit = np.array([150.0, 170.0, 130.0])
    first = np.arange(0, number + 1, 50)
    return lp_bound.Master(("a", "b", "c"), limit, value, first, row, column, demand[column, row])


@pytest.mark.parametrize("seed", range(5))
def test_beginning_with_few_columns_ends_at_the_same_optimum(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An LP over all columns and one that is given them as it goes have one optimum."""
    master = _master(seed)
    whole = lp_bound.relax(master)
    monkeypatch.setattr(lp_bound, "_SIFTED", 100)
    monkeypatch.setattr(lp_bound, "_FIRST", 2)
    few = lp_bound.relax(master)
    assert few.bound == pytest.approx(whole.bound, rel=1e-7)
    assert float(master.value @ few.fraction) == pytest.approx(float(master.value @ whole.fraction), rel=1e-7)


def test_what_no_choice_keeps_is_infeasible() -> None:
    """A demand that all columns together cannot meet must be told, not bounded."""
    master = _master(0)
    demanding = replace(master, amount=-master.amount, limit=np.full(3, -1e9))
    assert lp_bound.relax(demanding).infeasible


@pytest.mark.parametrize("seed", range(3))
def test_part_and_numbers_go_there_and_back(seed: int) -> None:
    """Columns are numbered anew in a part: what they take must be what they took."""
    master = _master(seed)
    rng = np.random.default_rng(seed)
    kept = np.flatnonzero(rng.random(len(master.value)) < 0.3)
    part = master.part(kept)
    chosen = np.array([int(part.first[t]) for t in range(40) if part.first[t] < part.first[t + 1]])
    assert part.taken(chosen) == pytest.approx(master.taken(kept[chosen]))
    assert master.choice(master.number({3: 7, 1: 2})) == {1: 2, 3: 7}
    assert part.demand(0, 5).sum(axis=0) == pytest.approx(master.taken(kept[:5]))


def test_both_bounds_are_reported() -> None:
    """HiGHS and OR-Tools have clashed in one process before: then the LP bound silently vanished."""
    tasks = tuple(
        table_task(f"t{n}", 1.0, {"train": {g: 10.0 / g**0.9 for g in range(1, 5)}}) for n in range(2)
    )
    plan = solve_problem(Problem(table_cluster(6), tasks)).require_plan()
    bounds = dict(plan.certificate.bounds)
    assert set(bounds) == {"lp", "cp-sat"}
    assert plan.certificate.bound == min(bounds.values())
    assert plan.certificate.objective <= plan.certificate.bound


def test_solving_prints_nothing_and_loads_no_pandas() -> None:
    """Results go to stdout: a solver's banner there would break every script. OR-Tools would load pandas."""
    code = (
        "import sys\n"
        "from libra_plan.planner.tables import table_cluster, table_task\n"
        "from libra_plan.planner.problem import Problem\n"
        "from libra_plan.planner.optimize.solve import solve_problem\n"
        "t = table_task('t', 1.0, {'train': {1: 10.0, 2: 6.0}})\n"
        "assert solve_problem(Problem(table_cluster(2), (t,))).plan is not None\n"
        "assert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
