"""The record: whole or refused, migrated, trimmed, and never written over when it is damaged."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from loops import Loop, at, running_best, scaling, slower, well, world

from libra_plan.errors import StateError
from libra_plan.planner.controller.history import derive_again
from libra_plan.planner.controller.hysteresis import ReplanPolicy, RetentionPolicy
from libra_plan.planner.controller.job_queue import read_requests
from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.store import STATE_EVERY, StateStore


def recorded(path: Path, count: int) -> StateStore:
    """Record so many looks at a world that changes now and then."""
    store = StateStore.open(path)
    problem = running_best(world(4, [scaling("a", 100.0, 0.7, 4), scaling("b", 100.0, 0.7, 4)]))
    state = LoopState()
    for number in range(count):
        seen = slower(problem, {"a": 1.0 + (number // 7) * 0.1})
        inputs = LoopInputs(seen, ReplanPolicy(), at(number), well(seen, at(number)))
        looked = reconcile(inputs, state)
        outcome = "kept" if looked.decision.plan is None else "dry-run"
        store.record(inputs, state, looked, outcome)
        state = looked.kept
    return store


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    """State, decisions and inputs come back equal, and in the order they were made."""
    store = recorded(tmp_path / "replan.db", 3)
    assert [row.id for row in store.looks()] == [1, 2, 3]
    assert store.state().looks == 3
    assert store.decision(2).rule == store.looks()[1].rule
    assert store.inputs(3).now == at(2)


def test_replay_gives_the_same_bytes(tmp_path: Path) -> None:
    """Every decision and state follows from recorded inputs, bit for bit."""
    store = recorded(tmp_path / "replan.db", 20)
    every = list(derive_again(store))
    assert len(every) == 20
    assert all(each.same for each in every)


def test_another_policy_is_replayed_on_the_same_world(tmp_path: Path) -> None:
    """`replay --policy`: an eager policy would have acted where the recorded one kept."""
    store = recorded(tmp_path / "replan.db", 20)
    never = ReplanPolicy(safety=type(ReplanPolicy().safety)(telemetry_max_age_s=0.0))
    kept = list(derive_again(store, policy=never))
    assert all(each.decision.plan is None for each in kept)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "zeros"])
def test_damage_is_refused_and_left_alone(tmp_path: Path, damage: str) -> None:
    """A076: a state that is cut off or zeroed is named with a way out; its bytes stay for who wants them."""
    path = tmp_path / "replan.db"
    recorded(path, 60).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    for name in ("replan.db-wal", "replan.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(
        {
            "empty": b"",
            "text": b"not a database at all" * 100,
            "cut": whole[:middle],
            "zeros": whole[:4096] + bytes(len(whole) - 4096),
        }[damage]
    )
    before = path.read_bytes()
    with pytest.raises(StateError) as refused:
        StateStore.open(path)
    assert refused.value.exit_code == 2
    assert "move it away" in str(refused.value)
    assert path.read_bytes() == before


def test_a_changed_blob_is_found(tmp_path: Path) -> None:
    """A database can be sound and its content not what was written: digests tell."""
    path = tmp_path / "replan.db"
    store = recorded(path, 2)
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE current_state SET digest = 'sha256:0'")
    connection.close()
    with pytest.raises(StateError, match="damaged"):
        StateStore.open(path).state()


def read_all(path: Path) -> None:
    """Read what a look reads first."""
    store = StateStore.open(path)
    store.state()
    read_requests(store)


@pytest.mark.parametrize(
    "harm",
    [
        "update libra_plan_meta set value='many' where name='schema'",
        "delete from current_state",
        "insert into tasks values ('late', 'added', null, null, '{', 0, '')",
    ],
)
def test_rows_that_say_nothing_are_damage(tmp_path: Path, harm: str) -> None:
    """A whole file may hold nonsense: it is refused, and not taken for a record that begins anew."""
    path = tmp_path / "replan.db"
    recorded(path, 2).close()
    with sqlite3.connect(path) as connection:
        connection.execute(harm)
    connection.close()
    with pytest.raises(StateError, match="damaged"):
        read_all(path)


def test_old_looks_are_dropped_and_the_rest_can_be_replayed(tmp_path: Path) -> None:
    """A081: the record does not grow for ever, and what stays begins at a kept state."""
    path = tmp_path / "replan.db"
    store = recorded(path, STATE_EVERY + 10)
    gone = store.forget(RetentionPolicy(looks=5), at(1000).wall_s)
    assert gone == STATE_EVERY
    rows = store.looks()
    assert rows[0].id == STATE_EVERY + 1
    assert all(each.same for each in derive_again(store))
    assert len(list(derive_again(store))) == len(rows)


def test_looks_without_a_kept_state_are_named(tmp_path: Path) -> None:
    """Who asks for look 3 and hears of look 65 must be told why."""
    store = recorded(tmp_path / "replan.db", STATE_EVERY + 2)
    passed: list[int] = []
    assert [each.look.id for each in derive_again(store, passed, first=3)] == [
        STATE_EVERY + 1,
        STATE_EVERY + 2,
    ]
    assert passed == list(range(3, STATE_EVERY + 1))


def test_names_of_any_bytes(tmp_path: Path) -> None:
    """A080: a path with accents, or bytes that are no text, is a path."""
    for name in ("état", os.fsdecode(b"a\xff")):
        folder = tmp_path / name
        folder.mkdir()
        assert StateStore.open(folder / "replan.db").state() == LoopState()


def test_the_loop_and_its_record_agree(tmp_path: Path) -> None:
    """An adopted change is in the next state; one that was only decided (dry run) is not."""
    loop = Loop(running_best(world(4, [scaling("a", 100.0, 0.7, 4)])))
    looked = loop.look()
    store = StateStore.open(tmp_path / "replan.db")
    store.record(LoopInputs(loop.problem, loop.policy, at(0)), LoopState(), looked, "kept")
    assert store.state() == looked.kept
