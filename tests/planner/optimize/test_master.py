"""Choose, place, cut: budgets of time and work, conflicts, doubts, and who gives way."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from libra_plan.models.parallelism import Layout
from libra_plan.planner.optimize import master
from libra_plan.planner.optimize.assignment import UndecidedError
from libra_plan.planner.optimize.backends import MasterResult
from libra_plan.planner.optimize.base import SolveParams, SolverWork
from libra_plan.planner.optimize.baselines import keeps_all
from libra_plan.planner.optimize.constraints import Choice, base_constraints
from libra_plan.planner.optimize.interrupter import Interrupter
from libra_plan.planner.optimize.master import Budget, Search
from libra_plan.planner.optimize.objective import candidates_of
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, Problem, Task
from libra_plan.planner.tables import table_cluster, table_task


def _of_size(name: str, gpus: int, weight: float = 1.0) -> Task:
    return table_task(name, weight, {"r": {gpus: 2.0}}, replica_gpus={"r": gpus})


def _search(*tasks: Task, running: tuple[IncumbentTask, ...] = (), **more: object) -> Search:
    problem = Problem(table_cluster(8, 4), tasks, running)
    made = candidates_of(problem, problem)
    budget = Budget.of(10.0, lambda: 0.0, SolverWork())
    params = SolveParams(gap=0.0, deterministic=True, **more)  # type: ignore[arg-type]
    return Search(problem, made, base_constraints(made, problem.cluster), params, budget)


# ---------------------------------------------------------------- budgets


def test_a_budget_ends_by_clock_and_by_work() -> None:
    """Of 10 s, 4 have passed and 7 deterministic ones are used; half of what is left is another budget."""
    now, work = {"s": 100.0}, SolverWork(5.0)
    budget = Budget.of(10.0, lambda: now["s"], work)
    now["s"], work.done_s = 104.0, 12.0
    assert (budget.left_s, budget.work_left_s, budget.spent) == (6.0, 3.0, False)
    half = budget.part(2)
    assert (half.left_s, half.work_left_s) == (3.0, 1.5)
    now["s"], work.done_s = 111.0, 99.0
    assert (budget.left_s, budget.work_left_s, budget.spent) == (0.01, 0.01, True)


def test_a_deterministic_search_ends_by_work_alone() -> None:
    """Its plan must not depend on the clock."""
    now, work = {"s": 0.0}, SolverWork()
    search = _search(_of_size("a", 1))
    search.budget = Budget.of(10.0, lambda: now["s"], work)
    now["s"] = 50.0
    assert not search.ended
    assert search.step_s() == 10.0
    work.done_s = 10.0
    assert search.ended
    search.params = replace(search.params, deterministic=False)
    now["s"], work.done_s = 9.0, 99.0
    assert not search.ended
    assert search.step_s() == 1.0
    now["s"] = 10.0
    assert search.ended


def test_whoever_stops_it_ends_it() -> None:
    """At once, whatever is left."""
    interrupter = Interrupter()
    search = _search(_of_size("a", 1), interrupter=interrupter)
    assert not search.ended
    interrupter.stop()
    assert search.ended


# ---------------------------------------------------------------- conflicts


def test_the_smallest_set_that_cannot_be_placed_is_cut() -> None:
    """Three blocks of 3 fit on no two nodes of 4; the single GPU beside them has nothing to do with it."""
    search = _search(*(_of_size(name, 3) for name in "abc"), _of_size("single", 1))
    everything: Choice = dict.fromkeys(range(4), 0)
    answers = iter([everything, {0: 0, 1: 0, 3: 0}])
    result, placed = search.until_placed(lambda: MasterResult(next(answers), 4.0, optimal=True))
    assert placed is not None
    assert placed.choice == {0: 0, 1: 0, 3: 0}
    assert result.bound == 4.0
    assert (search.cuts, search.doubts) == (1, 0)
    assert search.constraints[-1].coefficients == {(t, 0): 1.0 for t in range(3)}
    assert not keeps_all(search.constraints[-1:], everything)


def test_a_choice_not_placed_in_time_is_passed_over_and_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From then on there is no bound, and what finds nothing is not infeasible."""
    search = _search(_of_size("a", 1), _of_size("b", 1))
    real = master.place

    def out_of_time(problem, tasks, choice, params, *, limit_s):
        if len(choice) == 2:
            raise UndecidedError
        return real(problem, tasks, choice, params, limit_s=limit_s)

    monkeypatch.setattr(master, "place", out_of_time)
    answers = iter([{0: 0, 1: 0}, {1: 0}])
    result, placed = search.until_placed(lambda: MasterResult(next(answers), 2.0, optimal=True))
    assert placed is not None
    assert placed.choice == {1: 0}
    assert (search.cuts, search.doubts) == (1, 1)
    assert (result.bound, result.optimal) == (math.inf, False)
    assert search.is_undecided({0: 0, 1: 0})
    assert not search.is_undecided({1: 0})
    nothing = search.believed(MasterResult(None, -math.inf, optimal=True, infeasible=True))
    assert not nothing.infeasible


def test_a_cut_proves_nothing_where_configurations_were_dropped() -> None:
    """One of them might be placed where the one that was cut for it cannot."""
    search = _search(_of_size("a", 1))
    proven = MasterResult({0: 0}, 1.0, optimal=True)
    search.tasks = [replace(each, exact=False) for each in search.tasks]
    assert search.believed(proven) == proven
    search.cuts = 1
    assert search.believed(proven).bound == math.inf
    search.tasks = [replace(each, exact=True) for each in search.tasks]
    assert search.believed(proven) == proven


def test_what_was_tried_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Placing twice asks once."""
    search = _search(_of_size("a", 1))
    first = search.place({0: 0})
    monkeypatch.setattr(master, "place", lambda *_, **__: pytest.fail("asked again"))
    assert search.place({0: 0}) == first


def test_most_of_a_split_is_placed_those_of_most_value_per_gpu_first() -> None:
    """Two of the three blocks of 3 have room: the heavier ones."""
    search = _search(_of_size("a", 3, 2.0), _of_size("b", 3, 1.0), _of_size("c", 3, 3.0))
    entries = [each.candidates[0].value for each in search.tasks]
    least = min(range(3), key=entries.__getitem__)
    placed = search.place_most(dict.fromkeys(range(3), 0))
    assert placed is not None
    assert len(placed.choice) == 2
    if len(set(entries)) == 3:
        assert least not in placed.choice
    settled = search.place_most(dict.fromkeys(range(3), 0), settled=1)
    assert settled is not None
    assert 0 in settled.choice


def test_a_kept_task_gives_way_to_one_that_has_no_room() -> None:
    """One GPU is held on each node; a block of 4 needs a node, so one of the two moves to the other's."""
    nodes = table_cluster(8, 4).nodes
    running = tuple(
        IncumbentTask(name, (IncumbentRole("r", Layout(), ((node.gpus[0].id,),), "r"),))
        for name, node in zip("ab", nodes, strict=True)
    )
    search = _search(_of_size("a", 1), _of_size("b", 1), _of_size("new", 4), running=running)
    kept = {t: next(c for c, entry in enumerate(search.tasks[t].candidates) if entry.held) for t in (0, 1)}
    assert search.place({**kept, 2: 0}) is None
    placed = search.with_more_moves({**kept, 2: 0})
    assert placed is not None
    stay = [t for t in (0, 1) if search.tasks[t].candidates[placed.choice[t]].held is not None]
    assert len(stay) == 1
    assert search.with_more_moves(kept) is None  # nobody lacks room
