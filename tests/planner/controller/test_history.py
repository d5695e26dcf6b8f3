"""Looks listed, explained and derived again."""

from __future__ import annotations

from pathlib import Path

import pytest
from loops import EAGER, Loop, at, shifted_world, well

from libra_plan.errors import StateError
from libra_plan.planner.controller.history import explain_look, history, replay
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.store import StateStore


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Record four looks, the first of which changes the plan."""
    loop = Loop(shifted_world(), EAGER)
    store = StateStore.open(tmp_path / "replan.db")
    for number in range(4):
        before, problem = loop.state, loop.problem
        found = loop.look()
        inputs = LoopInputs(problem, EAGER, at(number), well(problem, at(number)))
        store.record(inputs, before, found, "kept" if found.decision.plan is None else "applied")
    return tmp_path


def test_looks_are_listed_newest_last(run: Path) -> None:
    """All, the newest, or those that changed something."""
    assert [row.id for row in history(run)] == [1, 2, 3, 4]
    assert [row.id for row in history(run, newest=2)] == [3, 4]
    assert [(row.id, row.rule) for row in history(run, changes=True)] == [(1, "gain")]


def test_one_look_is_explained(run: Path) -> None:
    """With its decision; one that was never taken is named with those that were."""
    found = explain_look(run, 1)
    assert (found.look.id, found.decision.rule, found.outcomes) == (1, "gain", ())
    assert found.decision.plan is not None
    with pytest.raises(StateError, match="no such look; got 9; allowed: 1 to 4"):
        explain_look(run, 9)


def test_every_look_is_derived_again(run: Path) -> None:
    """Bit for bit, also from the record alone."""
    found = replay(run)
    assert [each.look.id for each in found.looks] == [1, 2, 3, 4]
    assert found.otherwise == ()
    assert found.passed_over == ()


def test_another_policy_decides_otherwise(run: Path) -> None:
    """Three looks in a row instead of one: the first look keeps, and says so."""
    policy = run / "careful.yaml"
    policy.write_text("rule: {looks_up: 3, looks_down: 3}\nstay: {task_s: 0}\n")
    other = replay(run, replan_policy=policy).otherwise
    assert (other[0].look.id, other[0].look.rule, other[0].decision.rule) == (1, "gain", "looks")


def test_looks_before_the_first_kept_state_are_passed_over(run: Path) -> None:
    """A replay from the third look has no state to begin with."""
    found = replay(run, first=3)
    assert (found.looks, found.passed_over) == ((), (3, 4))
