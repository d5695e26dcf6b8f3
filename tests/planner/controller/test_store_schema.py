"""A record is opened when it is whole and ours, brought to this version, and otherwise refused."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
from pathlib import Path

import pytest

from libra_plan.errors import StateError
from libra_plan.planner.controller import store_schema
from libra_plan.planner.controller.job_queue import paused_tasks, read_requests
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.store import StateStore

RECORD = Path(__file__).parents[2] / "data" / "replan" / "record-0.1.db.gz"
"""Three looks and a request, as version 0.1.0 wrote them."""


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """Unpack the record of an earlier version."""
    path = tmp_path / "earlier.db"
    path.write_bytes(gzip.decompress(RECORD.read_bytes()))
    return path


def test_a_record_of_an_earlier_version_is_read(earlier: Path) -> None:
    """Users' runs go on after an update: looks, decisions, inputs, state and requests are there."""
    store = StateStore.open(earlier)
    assert [(row.id, row.rule, row.outcome) for row in store.looks()] == [
        (1, "gain", "applied"),
        (2, "bound", "kept"),
        (3, "bound", "kept"),
    ]
    decision = store.decision(1)
    assert {move.task: move.action for move in decision.moves} == {"a": "shrink", "b": "grow"}
    assert decision.plan is not None
    inputs = store.inputs(1)
    assert inputs.window is not None
    assert inputs.window.seen[0].seconds == 20.0
    state = store.state()
    assert state.looks == 3
    assert [estimate.task for estimate in state.tracked] == ["a"]
    assert paused_tasks(read_requests(store)) == {"a"}


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A093: an unknown version stops; it is not read as if it were known."""
    path = tmp_path / "replan.db"
    StateStore.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE libra_plan_meta SET value = '99' WHERE name = 'schema'")
    connection.close()
    with pytest.raises(StateError, match="newer version"):
        StateStore.open(path)


def test_an_older_schema_is_migrated(tmp_path: Path, earlier: Path) -> None:
    """A record of the first version gets the tables of the second, and keeps its looks."""
    path = tmp_path / "replan.db"
    shutil.copy(earlier, path)
    with sqlite3.connect(path) as connection:
        for table in ("tasks", "task_log", "outcomes"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("UPDATE libra_plan_meta SET value = '1' WHERE name = 'schema'")
    connection.close()
    store = StateStore.open(path)
    assert len(store.looks()) == 3
    with store.begin() as connection:
        assert connection.execute(store_schema.meta.select()).all() == [("schema", "2")]
        assert connection.execute(store_schema.outcomes.select()).all() == []


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    """A path by mistake must not get our tables."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StateError, match="not libra-plan's"):
        StateStore.open(path)


def test_it_is_not_made_where_it_is_only_read(tmp_path: Path) -> None:
    """`history` of a folder without looks says so and leaves nothing behind."""
    with pytest.raises(StateError, match="no state yet"):
        StateStore.open(tmp_path / "replan.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_creation_is_begun_anew(tmp_path: Path) -> None:
    """What a killed run left half made beside the file is not taken for it."""
    (tmp_path / ".replan.db.new").write_bytes(b"half")
    assert StateStore.open(tmp_path / "replan.db").state() == LoopState()
