"""Tables of the loop's record, and the steps from one version of them to the next."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    update,
)

from libra_plan.errors import StateError

__all__ = ["VERSION", "blobs", "current", "lease", "looks", "migrate", "outcomes", "task_log", "tasks"]

_ALL = MetaData()
meta = Table("libra_plan_meta", _ALL, Column("name", String(40), primary_key=True), Column("value", Text))
blobs = Table(
    "blobs",
    _ALL,
    Column("digest", String(80), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("data", LargeBinary, nullable=False),
)
looks = Table(
    "looks",
    _ALL,
    Column("id", Integer, primary_key=True),
    Column("wall_s", Float, nullable=False),
    Column("problem", String(80), nullable=False),
    Column("today", String(80)),
    Column("state_before", String(80), nullable=False),
    Column("state_after", String(80), nullable=False),
    Column("decision_digest", String(80), nullable=False),
    Column("inputs", LargeBinary, nullable=False),
    Column("decision", LargeBinary, nullable=False),
    Column("rung", String(20), nullable=False),
    Column("rule", String(20), nullable=False),
    Column("why", Text, nullable=False),
    Column("gain", Float),
    Column("net", Float),
    Column("cost", Float),
    Column("outcome", String(12), nullable=False),
    Column("parent", String(80)),
    Column("manifest", String(80)),
)
current = Table(
    "current_state",
    _ALL,
    Column("one", Integer, primary_key=True),
    Column("digest", String(80), nullable=False),
    Column("data", LargeBinary, nullable=False),
)
lease = Table(
    "lease",
    _ALL,
    Column("name", String(20), primary_key=True),
    Column("holder", String(200), nullable=False),
    Column("until_s", Float, nullable=False),
)
tasks = Table(
    "tasks",
    _ALL,
    Column("id", String(63), primary_key=True),
    Column("state", String(12), nullable=False),
    Column("weight", Float),
    Column("tier", Integer),
    Column("spec", Text),
    Column("since_s", Float, nullable=False),
    Column("reason", Text, nullable=False),
)
task_log = Table(
    "task_log",
    _ALL,
    Column("id", Integer, primary_key=True),
    Column("wall_s", Float, nullable=False),
    Column("task", String(63), nullable=False),
    Column("what", String(20), nullable=False),
    Column("reason", Text, nullable=False),
)
outcomes = Table(
    "outcomes",
    _ALL,
    Column("look", Integer, primary_key=True),
    Column("task", String(63), primary_key=True),
    Column("role", String(63), primary_key=True),
    Column("predicted_s", Float, nullable=False),
    Column("realised_s", Float, nullable=False),
    Column("seen_at_look", Integer, nullable=False),
)

_STEPS: tuple[tuple[Table, ...], ...] = (
    (meta, blobs, looks, current, lease),  # 1: the record
    (tasks, task_log, outcomes),  # 2: the queue, and what came of decisions
)
VERSION = len(_STEPS)


def migrate(engine: Engine) -> None:
    """Bring a store to this version; a newer one is refused, and every step may be repeated."""
    with engine.begin() as connection:
        version = version_of(connection)
        if version > VERSION:
            raise StateError(
                "the state was written by a newer version",
                got=f"schema {version}",
                allowed=f"schema {VERSION} or older",
                way_out="update libra-plan, or name another state with --state",
            )
        for step in range(version, VERSION):
            for table in _STEPS[step]:
                table.create(connection, checkfirst=True)
            _set_version(connection, step + 1)


def version_of(connection: Connection) -> int:
    """Give the version of a store; 0 when it is empty."""
    if not inspect(connection).has_table(meta.name):
        return 0
    found = connection.execute(select(meta.c.value).where(meta.c.name == "schema")).scalar()
    return 0 if found is None else int(found)


def _set_version(connection: Connection, version: int) -> None:
    changed = connection.execute(update(meta).where(meta.c.name == "schema").values(value=str(version)))
    if changed.rowcount == 0:
        connection.execute(insert(meta).values(name="schema", value=str(version)))
