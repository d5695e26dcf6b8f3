"""Configuration generation: against exhaustive search, HiGHS on the compact model, and the frozen cases' rules."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allocation_check import check_allocation, moved_gpus
from hypothesis import example, given, settings
from hypothesis import strategies as st

from libra_plan.planner.optimize.colgen.fronts import MixRole, TableRole
from libra_plan.planner.optimize.colgen.halves import Configurations, halves, meet
from libra_plan.planner.optimize.colgen.held import IncumbentRole, kept_by_block, kept_by_mix
from libra_plan.planner.optimize.colgen.minrate import Form, MinRateTask
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.search import Limits, optimise

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from allocation_case import Allocation, after
from allocation_generate import generate
from scale import changed_case

PRICES = st.lists(st.floats(0.01, 0.5), min_size=2, max_size=2)


def small_task(seed: int) -> MinRateTask:
    """Make a task with a table role and two mixes, on two rows."""
    rng = np.random.default_rng(seed)
    demand = np.array([[1.0, 0.0], [0.0, 1.0]])
    table = TableRole(
        demand,
        (0, 1),
        np.array([0, 0, 0, 1, 1]),
        np.array([1, 2, 3, 1, 2]),
        np.concatenate((np.cumsum(rng.uniform(0.3, 1, 3)), np.cumsum(rng.uniform(0.3, 1, 2)))),
        np.zeros(5),
    )
    mixes = tuple(
        MixRole(
            np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]),
            (0, 1, 2),
            np.arange(3),
            rng.uniform(0.2, 1.2, 3),
            np.array([3, 2, 3]),
            np.array([1, 2, 1]),
            rng.uniform(0, 0.05, 3),
            4,
        )
        for _ in range(2)
    )
    return MinRateTask(float(rng.integers(1, 4)), (Form((table,), mixes),))


def all_configurations(task: MinRateTask) -> list[tuple[float, np.ndarray[Any, np.dtype[np.float64]]]]:
    """List the value and demand of every configuration of a small task."""
    form = task.forms[0]
    table = form.tables[0]
    mixes = [
        [
            (float(np.dot(n, m.rate)), float(np.dot(n, m.extra)), np.asarray(n) @ m.demand)
            for n in itertools.product(*(range(int(c) + 1) for c in m.cap))
            if np.dot(n, m.gpus) <= m.max_gpus
        ]
        for m in form.mixes
    ]
    return [
        (
            task.weight * min(float(table.rate[p]), *(rate for rate, _, _ in ways))
            - sum(extra for _, extra, _ in ways),
            table.number[p] * table.demand[table.config[p]] + sum(demand for _, _, demand in ways),
        )
        for p in range(len(table.rate))
        for ways in itertools.product(*mixes)
    ]


@given(st.integers(0, 10_000), PRICES)
@settings(max_examples=40, deadline=None)
def test_pricing_finds_the_best_configuration(seed: int, prices: list[float]) -> None:
    """The bound of every solve rests on pricing being exact."""
    task, at = small_task(seed), np.array(prices)
    best = max(0.0, *(value - float(demand @ at) for value, demand in all_configurations(task)))
    priced = task.price(at, 0.0)
    assert priced.bound == pytest.approx(best, abs=1e-9)
    assert max([0.0, *(each.reduced for each in priced.configurations)]) == pytest.approx(best, abs=1e-9)


@given(st.integers(0, 10_000), PRICES)
@settings(max_examples=40, deadline=None)
def test_split_replicas_bound_whole_ones(seed: int, prices: list[float]) -> None:
    """First prices come from configurations that may split replicas: no whole configuration may be worth more."""
    task, at = small_task(seed), np.array(prices)
    rough = task.roughly(at)
    assert rough.bound >= task.price(at, 0.0).bound - 1e-9
    for configuration in rough.configurations:
        assert configuration.reduced == pytest.approx(rough.bound)
        assert configuration.value - float(configuration.demand @ at) == pytest.approx(configuration.reduced)


@given(st.integers(0, 10_000), PRICES, st.floats(0.01, 0.4))
@settings(max_examples=25, deadline=None)
def test_every_lists_all_configurations_that_matter(seed: int, prices: list[float], window: float) -> None:
    """A complete search proves a gap only if no configuration within the window is missing or beaten."""
    task, at = small_task(seed), np.array(prices)
    best = task.price(at, 0.0).bound
    at_least = max(1e-9, best - window)
    found, whole = task.every(at, at_least, 100_000)
    assert whole
    for value, demand in all_configurations(task):
        if value - float(demand @ at) >= at_least + 1e-9:
            assert any((each.demand <= demand + 1e-9).all() and each.value >= value - 1e-9 for each in found)


@given(st.integers(0, 10_000), st.floats(0.05, 2.0))
@settings(max_examples=30, deadline=None)
def test_halves_meet_in_the_best_pair(seed: int, window: float) -> None:
    """The proof of a window is that no choice within it is overlooked; sums to a limit are never exact."""
    rng = np.random.default_rng(seed)
    limits = np.array([4.0, 3.0]) * 0.1
    configurations = []
    for task in range(4):
        spent = rng.integers(0, 4, (6, 2)) * 0.1
        configurations.append(Configurations(task, np.sort(rng.uniform(0, 0.5, 6)), spent, spent))
    best = np.inf
    for pick in itertools.product(range(6), repeat=4):
        unused = limits - sum(configurations[t].spent[c] for t, c in enumerate(pick))
        if (unused >= -1e-9).all():
            best = min(best, sum(configurations[t].loss[c] for t, c in enumerate(pick)) + float(unused.sum()))
    both = halves(configurations, window, limits, 10_000)
    assert both is not None
    pairs = meet(both, limits, window, lambda demand: np.ones(len(demand), dtype=bool), 10**6)
    assert pairs is not None
    assert pairs.least == (pytest.approx(best) if best <= window else np.inf)
    if len(pairs.loss):
        ways = both[0].configurations_of(int(pairs.first[0])) + both[1].configurations_of(
            int(pairs.second[0])
        )
        assert sorted(task for task, _ in ways) == [0, 1, 2, 3]
        assert (sum(configurations[t].spent[c] for t, c in ways) <= limits + 1e-9).all()


@given(st.integers(0, 10_000))
@example(863)
@settings(max_examples=15, deadline=None)
def test_the_answer_is_the_optimum_of_exhaustive_search(seed: int) -> None:
    """Two small tasks can be searched completely: plan and bound must meet there."""
    tasks = [small_task(seed), small_task(seed + 1)]
    limit = np.array([5.0, 3.0])
    frontier = []
    for task in tasks:
        best: dict[tuple[float, ...], float] = {(0.0, 0.0): 0.0}
        for value, demand in all_configurations(task):
            key = tuple(demand)
            if (demand <= limit).all() and value > best.get(key, 0.0):
                best[key] = value
        frontier.append(best)
    optimum = max(
        a + b
        for (x, a), (y, b) in itertools.product(*(f.items() for f in frontier))
        if all(p + q <= r for p, q, r in zip(x, y, limit, strict=True))
    )
    answer = optimise(Resources(("a", "b"), limit, np.zeros((0, 2))), tasks, Limits(10.0, 1e-7))
    assert answer.objective == pytest.approx(optimum, abs=1e-6)
    assert answer.bound >= optimum - 1e-9
    assert answer.gap <= 1e-6


def solved(case: dict[str, Any], gap: float = 1e-2) -> tuple[Allocation, Any, dict[str, Any]]:
    allocation = Allocation(case)
    answer = optimise(allocation.resources, allocation.oracles, Limits(2.0, gap), lacking=allocation.lacking)
    plan = allocation.place(answer.chosen)
    assert plan is not None
    return allocation, answer, plan


@pytest.mark.parametrize("seed", [0, 1])
def test_placed_plans_keep_the_rules_of_the_case(seed: int) -> None:
    """A checker that knows the case file alone must accept the plan and find the same value."""
    case = generate(6, 7, seed)
    _, answer, plan = solved(case)
    assert check_allocation(case, plan) == pytest.approx(answer.objective, rel=1e-9)
    assert answer.bound >= answer.objective


def test_an_unchanged_problem_moves_nothing() -> None:
    """A user who asks again must not see tasks restarted for nothing."""
    case = generate(4, 5, 3)
    allocation, answer, plan = solved(case)
    same = after(case, plan, answer.chosen)
    again = optimise(
        same.resources,
        same.oracles,
        Limits(8.0, max(answer.gap, 1e-6) * 1.01),
        prices=answer.prices,
        running=same.keeping(),
        lacking=same.lacking,
    )
    replanned = same.place(again.chosen)
    assert replanned is not None
    assert moved_gpus(plan, replanned) == 0
    assert again.objective == pytest.approx(allocation.value(plan), rel=1e-9)


def test_after_a_failure_lost_gpus_are_left_and_moves_are_paid() -> None:
    """The plan after an event uses what is left, and its value has every move in it."""
    case = generate(4, 5, 4)
    _, answer, plan = solved(case)
    changed = changed_case(case, 4)
    now = after(changed, plan, answer.chosen)
    again = optimise(
        now.resources, now.oracles, Limits(2.0, 1e-2), running=now.keeping(), lacking=now.lacking
    )
    replanned = now.place(again.chosen)
    assert replanned is not None
    gross = check_allocation(changed, replanned)
    assert gross - replanned["move_cost"] == pytest.approx(now.value(replanned), rel=1e-9)
    # Configurations know the least that must move; if placement could move less, the bound would be none.
    assert now.value(replanned) <= sum(each.value for each in again.chosen) + 1e-9
    assert now.value(replanned) <= again.bound + 1e-9


def compact_bound(case: dict[str, Any], allocation: Allocation) -> tuple[float, float]:
    """Solve the model with a count per role and config by HiGHS: objective and bound."""
    import highspy

    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("mip_rel_gap", 1e-6)
    model.setOptionValue("time_limit", 20.0)
    infinity, resources = highspy.kHighsInf, allocation.resources
    usage: list[list[tuple[int, float]]] = [[] for _ in resources.names]

    def variable(cost: float, upper: float, whole: bool) -> int:
        model.addVar(0.0, upper)
        number = int(model.getNumCol()) - 1
        model.changeColCost(number, cost)
        if whole:
            model.changeColIntegrality(number, highspy.HighsVarType.kInteger)
        return number

    def row(terms: list[tuple[int, float]], upper: float) -> None:
        index = np.array([i for i, _ in terms], dtype=np.int32)
        model.addRow(-infinity, upper, len(terms), index, np.array([v for _, v in terms]))

    def use(number: int, config: dict[str, Any], replicas: int) -> None:
        demand = replicas * allocation.demand_of(config)
        for r in np.flatnonzero(demand):
            usage[r].append((number, float(demand[r])))

    for task in case["work"]:
        forms = []
        for roles in [task["roles"], *([[task["colocated"]]] if task.get("colocated") else [])]:
            on, rate = variable(0.0, 1.0, True), variable(task["weight"], infinity, False)
            forms.append((on, 1.0))
            for role in roles:
                gives, gpus, one = [], [], []
                for config in role["configs"]:
                    k = config["gpus_per_replica"]
                    if role["kind"] == "table":
                        for n in range(1, min(config["max_replicas"], role["max_gpus"] // k) + 1):
                            pick = variable(0.0, 1.0, True)
                            one.append((pick, 1.0))
                            gives.append((pick, -config["rate_table"][n]))
                            use(pick, config, n)
                    else:
                        count = variable(0.0, config["max_replicas"], True)
                        gives.append((count, -config["rate_per_replica"]))
                        gpus.append((count, float(k)))
                        use(count, config, 1)
                row([(rate, 1.0), *gives], 0.0)
                row([*one, *gpus, (on, -1.0 if one else -float(role["max_gpus"]))], 0.0)
        row(forms, 1.0)
    units = [variable(0.0, infinity, True) for _ in resources.units]
    for r, terms in enumerate(usage):
        opened = [(units[u], float(unit[r])) for u, unit in enumerate(resources.units) if unit[r]]
        row([*terms, *opened], float(resources.limit[r]))
    model.changeObjectiveSense(highspy.ObjSense.kMaximize)
    model.run()
    info = model.getInfo()
    return float(info.objective_function_value), float(info.mip_dual_bound)


@pytest.mark.slow
def test_the_compact_model_agrees() -> None:
    """A model that knows no configurations must find nothing better than the bound, nor bound the plan away."""
    case = generate(8, 8, 0)
    allocation, answer, _ = solved(case, gap=1e-4)
    objective, bound = compact_bound(case, allocation)
    assert objective <= answer.bound * (1 + 1e-9)
    assert answer.objective <= bound * (1 + 1e-9)


def test_kept_gpus_are_counted_once() -> None:
    """A held GPU can be kept by one block only, whatever the sizes."""
    on_node = {"n0": 5, "n1": 2}
    assert kept_by_block(on_node, 4) == [4, 2, 1]
    assert kept_by_mix(on_node, [4, 4]) == 6
    held = IncumbentRole(("a", "a", "a"), (4, 1, 0), (16.0, 4.0, 1.0), {"a": on_node}, 1.0)
    assert held.moves(np.array([1.0, 3.0, 0.0])) == 0.0
    assert held.moves(np.array([2.0, 0.0, 0.0])) == 2.0
    assert held.moves(np.array([1.0, 0.0, 12.0])) == 0.0
    assert held.moves(np.array([1.0, 0.0, 13.0])) == 1.0


def test_a_stopped_search_answers_with_a_bound_that_holds() -> None:
    """Ctrl-C returns the incumbent: whenever that is, plan and bound must enclose the optimum."""
    case = generate(4, 5, 3)
    full = solved(case)[1]
    for looks in (1, 20, 60):
        allocation, seen = Allocation(case), []

        def stop(seen: list[int] = seen, looks: int = looks) -> bool:
            seen.append(1)
            return len(seen) > looks

        answer = optimise(allocation.resources, allocation.oracles, Limits(5.0, 1e-4), stop=stop)
        assert answer.objective <= full.bound + 1e-9
        assert answer.bound >= full.objective - 1e-9
