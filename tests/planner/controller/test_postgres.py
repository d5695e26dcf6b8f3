"""Several planners on one PostgreSQL: one leads, one whose lease was taken writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from loops import Loop, at, running_best, scaling, well, world
from postgres import server

from libra_plan.errors import LockedError, StateError
from libra_plan.planner.controller.history import derive_again
from libra_plan.planner.controller.hysteresis import ReplanPolicy
from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.store import StateStore

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("postgres")) as found:
        yield found


@pytest.fixture
def planner(url: str) -> Iterator[Callable[[str], StateStore]]:
    """Open the shared record as somebody, and close it after the test."""
    with ExitStack() as opened:

        def planner_of(holder: str) -> StateStore:
            store = StateStore.open(url, holder=holder)
            opened.callback(store.close)
            return store

        yield planner_of


def test_one_leads_and_the_others_leave(planner: Callable[[str], StateStore]) -> None:
    """The lease keeps a second planner out until it ends or is given back."""
    first, second = planner("one"), planner("two")
    first.lead(60.0)
    first.lead(60.0)
    with pytest.raises(LockedError) as refused:
        second.lead(60.0)
    assert refused.value.exit_code == 5
    first.resign()
    second.lead(60.0)
    second.resign()


def test_a_record_is_kept_and_replayed_there(planner: Callable[[str], StateStore]) -> None:
    """The same looks come back from a shared database, bit for bit."""
    store = planner("one")
    store.lead(60.0)
    problem = running_best(world(4, [scaling("a", 100.0, 0.7, 4)]))
    state = LoopState()
    for number in range(5):
        inputs = LoopInputs(problem, ReplanPolicy(), at(number), well(problem, at(number)))
        looked = reconcile(inputs, state)
        store.record(inputs, state, looked, "kept")
        state = looked.kept
    assert store.state() == state
    assert [each.same for each in derive_again(store)] == [True] * 5
    store.resign()


def test_a_planner_that_lost_the_lead_cannot_write(planner: Callable[[str], StateStore]) -> None:
    """A look that took too long must not overwrite what the new leader decided."""
    slow, other = planner("slow"), planner("other")
    slow.lead(0.0)
    other.lead(60.0)
    loop = Loop(running_best(world(4, [scaling("a", 100.0, 0.7, 4)])))
    with pytest.raises(LockedError, match="taken the lead"):
        slow.record(LoopInputs(loop.problem, loop.policy, at(0)), LoopState(), loop.look(), "kept")
    other.resign()


def test_a_database_that_is_not_there_is_told() -> None:
    """A wrong host is bad input, not a defect."""
    with pytest.raises(StateError, match="cannot be reached"):
        StateStore.open("postgresql+psycopg://nobody@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(StateError, match="no database URL"):
        StateStore.open("nonsense+driver://x")
