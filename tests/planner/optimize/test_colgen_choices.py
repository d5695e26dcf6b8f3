"""Choices of configuration generation: tasks chosen anew, blocks and shares that stay where they are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.planner.optimize.colgen.anew import improve
from libra_plan.planner.optimize.colgen.fronts import MixRole, TableRole, undominated
from libra_plan.planner.optimize.colgen.halves import Configurations, halves, meet, meet_some, window_of
from libra_plan.planner.optimize.colgen.held import IncumbentRole
from libra_plan.planner.optimize.colgen.minrate import Form, MinRateTask
from libra_plan.planner.optimize.colgen.placing import Block, NodeRoom, Share, place_blocks, place_shares
from libra_plan.planner.optimize.colgen.purses import purses
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.state import Caller, Limits, State
from libra_plan.planner.optimize.colgen.table import TableOracle


def tables(seed: int, tasks: int) -> list[TableOracle]:
    """Make tasks of eight configurations each on two rows; what is worth more takes more."""
    rng = np.random.default_rng(seed)
    demands = [rng.integers(1, 9, (8, 2)).astype(float) for _ in range(tasks)]
    return [TableOracle((each @ [1.0, 1.3]) ** 0.8 * rng.uniform(0.9, 1.1, 8), each) for each in demands]


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_choosing_anew_ends_near_the_best_of_all_choices(seed: int) -> None:
    """A rounded LP solution leaves GPUs unused: the steps must find nearly what exhaustive search finds."""
    oracles, limit = tables(seed, 4), np.array([14.0, 12.0])
    best = 0.0
    for pick in itertools.product(range(9), repeat=4):
        taken = [(oracles[t].values[c], oracles[t].demands[c]) for t, c in enumerate(pick) if c < 8]
        if (sum((d for _, d in taken), np.zeros(2)) <= limit).all():
            best = max(best, float(sum(v for v, _ in taken)))
    state = State(Resources(("a", "b"), limit, np.zeros((0, 2))), oracles, Limits(), Caller(lambda: 0.0), 0.0)
    for task, oracle in enumerate(oracles):
        state.pool.add(task, oracle.every(np.zeros(2), 0.0, 100)[0])
    state.price(np.full(2, 0.5))
    state.begin([(0, oracles[0].price(np.full(2, 0.5), -np.inf, 1).configurations[0])])
    improve(state, 4, ask=True)
    assert state.objective == pytest.approx(best)


@given(st.integers(0, 10_000), st.integers(1, 200))
@settings(max_examples=20, deadline=None)
def test_a_counted_window_holds_about_so_many_ways(seed: int, ways: int) -> None:
    """Counting before listing saves tries: no half may have many more ways than were asked for."""
    rng = np.random.default_rng(seed)
    listed = [
        Configurations(t, np.sort(rng.uniform(0, 1, 5)), rng.uniform(0, 1, (5, 1)), np.zeros((5, 1)))
        for t in range(6)
    ]
    listed = [Configurations(each.task, each.loss - each.loss[0], each.spent, each.demand) for each in listed]
    window = window_of(listed, 3.0, ways)
    both = halves(listed, window * (1 - 1 / 16), np.array([99.0]), 10**6)
    assert both is not None
    assert 0 < window <= 3.0
    assert min(map(len, both)) <= 4 * ways  # tasks may be dealt out to halves in another way


def test_where_there_are_too_many_pairs_the_best_ways_are_looked_at() -> None:
    """A plan at once is better than none because there are too many: what loses least comes first."""
    rng = np.random.default_rng(0)
    listed = []
    for task in range(6):
        spent = rng.integers(0, 90, (9, 1)) * 1.0
        listed.append(Configurations(task, np.sort(rng.uniform(0, 0.1, 9)), spent, spent))
    limits = np.array([200.0])
    both = halves(listed, 1.0, limits, 10**6)
    assert both is not None
    assert meet(both, limits, 9.0, lambda d: np.ones(len(d), dtype=bool), 500) is None
    some = meet_some(both, limits, 9.0, lambda d: np.ones(len(d), dtype=bool), 500)
    assert len(some.loss)
    for first, second in zip(some.first, some.second, strict=True):
        demand = both[0].demand_of(np.array([first])) + both[1].demand_of(np.array([second]))
        assert float(np.ravel(demand)[0]) <= 200 + 1e-9


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_undominated_points_are_those_that_no_other_matches(seed: int) -> None:
    """Points are compared many at a time, and the result must be as if one by one."""
    rng = np.random.default_rng(seed)
    usage, gain = rng.integers(0, 4, (300, 3)).astype(float), rng.integers(0, 6, 300).astype(float)
    kept = set(undominated(usage, gain).tolist())
    for i in range(300):
        matched = (usage <= usage[i]).all(axis=1) & (gain >= gain[i])
        better = matched & ((usage < usage[i]).any(axis=1) | (gain > gain[i]))
        assert not (i in kept and better.any())
        assert i in kept or any(j in kept for j in np.flatnonzero(matched))


def held_task(seed: int) -> MinRateTask:
    """Make a running task whose mix has configs of 1 and 2 GPUs on the GPUs that it holds."""
    rng = np.random.default_rng(seed)
    held = IncumbentRole(("a", "a"), (1, 2), (4.0, 8.0), {"a": {"n0": 2, "n1": 1}}, 0.05)
    extras = [held.extras(0, 4), held.extras(1, 2)]
    rates = np.array([0.5, 1.05]) * rng.uniform(0.95, 1.05, 2)
    items = [(c, e, extras[c].count(e)) for c in (0, 1) for e in sorted(set(extras[c]))]
    mix = MixRole(
        np.array([[1.0], [2.0]]),
        (0, 1),
        np.array([c for c, _, _ in items]),
        np.array([rates[c] for c, _, _ in items]),
        np.array([n for _, _, n in items]),
        np.array([c + 1 for c, _, _ in items]),
        np.array([e for _, e, _ in items]),
        4,
        held,
    )
    table = TableRole(
        np.array([[1.0]]), (0,), np.zeros(3, dtype=int), np.arange(1, 4), rng.uniform(0.5, 2, 3), np.zeros(3)
    )
    return MinRateTask(1.0, (Form((table,), (mix,)),))


@given(st.integers(0, 10_000), st.floats(0.01, 0.4))
@settings(max_examples=30, deadline=None)
def test_a_running_task_is_bounded_by_a_configuration_that_it_has(seed: int, price: float) -> None:
    """GPUs that two items count as kept are kept once: a bound that forgets it keeps a gap for ever."""
    task, prices = held_task(seed), np.array([price])
    answer = task.price(prices, 0.0)
    found = max((each.reduced for each in answer.configurations), default=0.0)
    assert answer.bound == pytest.approx(max(0.0, found), abs=1e-9)
    every, whole = task.every(prices, max(1e-9, answer.bound + 1e-9), 10_000)
    assert whole
    assert not every
    assert task.price(prices, 0.0, slack=0.2).bound <= answer.bound + 0.2


def test_a_linked_row_spends_from_the_purse_of_its_unit() -> None:
    """A quarter of a shared GPU costs a quarter of it; a row without a price binds nobody."""
    resources = Resources(
        ("gpu", "quarters", "cpu", "idle"), np.array([8.0, 0, 16, 5]), np.array([[1.0, -4, 0, 0]])
    )
    weights = purses(resources, np.array([0.4, 0.1, 0.3, 0.0]))
    assert weights.shape == (4, 3)
    np.testing.assert_allclose(weights[:, :2].T, [[0, 0, 0.3, 0], [0.4, 0.1, 0, 0]])


def test_a_block_comes_back_where_what_makes_way_loses_less() -> None:
    """A replica of four that holds three GPUs of a node moves one GPU, not four, if a cheap one gives way."""
    nodes = [NodeRoom("n0", "a", (0, 1, 2, 3)), NodeRoom("n1", "a", (0, 1, 2, 3))]
    held = {"big": [("n0", 0), ("n0", 1), ("n0", 2)], "small": [("n0", 3)]}
    cheap = place_blocks(nodes, [Block("big", "a", 4, 1.0), Block("small", "a", 1, 0.5)], held)
    dear = place_blocks(nodes, [Block("big", "a", 4, 1.0), Block("small", "a", 1, 9.0)], held)
    assert cheap is not None
    assert dear is not None
    assert {node for node, _ in cheap[0]} == {"n0"}
    assert dear[1] == (("n0", 3),)


def test_shares_move_together_on_fewer_gpus_with_few_moves() -> None:
    """Gaps on shared GPUs may each be too small for a share: a smaller one makes way, the others stay."""
    gpus = [("n0", i) for i in range(4)]
    held = {f"t{i}": [(gpus[i], 0)] for i in range(4)} | {f"u{i}": [(gpus[i], 0)] for i in range(3)}
    shares = [Share(f"t{i}", "a", 2.0, 10.0) for i in range(4)]
    shares += [Share(f"u{i}", "a", 1.0, 10.0) for i in range(3)]
    opened = place_shares(shares, {"a": 80.0}, held, {"a": 3})
    assert len(opened) == 3
    assert sorted(i for _, _, on in opened for i in on) == list(range(7))
    for _, _, on in opened:
        assert sum(shares[i].quarters for i in on) <= 4
    moved = sum(gpu != held[shares[i].owner][0][0] for _, gpu, on in opened for i in on)
    assert moved == 2
