"""Tables of the loop's record, the steps from one version of them to the next, and how a record is opened."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from sqlalchemy import (
    URL,
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
    create_engine,
    event,
    insert,
    inspect,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from libra_plan.errors import StateError, Where
from libra_plan.planner.launchers.store import lock_folder
from libra_plan.profiles.document import shown

__all__ = [
    "DATABASE",
    "VERSION",
    "blobs",
    "current",
    "damaged",
    "lease",
    "looks",
    "migrate",
    "open_engine",
    "outcomes",
    "task_log",
    "tasks",
]

DATABASE = "replan.db"
_OURS = 0x4C504C4E  # SQLite's application_id: the file says whose it is
_HEADER = b"SQLite format 3\0"

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


# ---------------------------------------------------------------- opening


def open_engine(where: Path | str, *, create: bool = True) -> Engine:
    """Open a file, or a URL such as `postgresql+psycopg://host/name`; refuse what is damaged or not ours."""
    if isinstance(where, str):
        return _by_url(where)
    if not where.exists():
        if not create:
            raise StateError(
                "there is no state yet",
                got=shown(where),
                way_out="libra-plan replan makes it, on its first look",
                where=Where(shown(where)),
            )
        _create(where)
    _check_header(where)
    engine = _sqlite(where)
    try:
        _check_content(engine, where)
        migrate(engine)
    except ValueError as problem:  # a version that is no number
        engine.dispose()
        raise damaged(where, problem) from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def _check_content(engine: Engine, where: Path) -> None:
    """Refuse a database that is damaged or not ours."""
    try:
        with engine.connect() as connection:
            owner = connection.execute(text("PRAGMA application_id")).scalar()
            said = connection.execute(text("PRAGMA quick_check(1)")).scalar()
    except DBAPIError as problem:
        raise damaged(where, problem.orig) from None
    if said != "ok":
        raise damaged(where, said)
    if owner != _OURS:
        raise StateError(
            "this database is not libra-plan's", got=f"application_id {owner}", where=Where(shown(where))
        )


def damaged(where: Path, what: object) -> StateError:
    """Say that a state file cannot be trusted, and what to do; nothing is written to it."""
    return StateError(
        "the state is damaged, and was left as it is",
        got=what,
        way_out="restore a copy, or move it away (with its -wal and -shm files) to begin a new record: "
        "the manifest and what runs are not in it",
        where=Where(shown(where)),
    )


def _by_url(url: str) -> Engine:
    try:
        parsed: URL = make_url(url)
        engine = create_engine(parsed, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError) as problem:
        raise StateError(
            "this is no database URL that can be used",
            got=problem,
            allowed="postgresql+psycopg://user@host/name",
        ) from None
    except ModuleNotFoundError as problem:
        raise StateError(
            "the driver of this database is not installed",
            got=problem.name,
            way_out="pip install 'libra-plan[postgres]'",
        ) from None
    try:
        migrate(engine)
    except DBAPIError as problem:
        engine.dispose()
        first = str(problem.orig).strip().splitlines()[0]
        where = Where(parsed.render_as_string())
        raise StateError("the database cannot be reached", got=first, where=where) from None
    except BaseException:
        engine.dispose()
        raise
    return engine


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(len(_HEADER))
    except OSError as problem:
        raise StateError("the state cannot be read", got=problem.strerror, where=Where(shown(path))) from None
    if head != _HEADER:
        raise damaged(path, "an empty file" if not head else "no SQLite database")


def _sqlite(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=os.fspath(path)))

    @event.listens_for(engine, "connect")
    def _settings(connection: sqlite3.Connection, _: object) -> None:
        try:
            for setting in ("busy_timeout=10000", "journal_mode=WAL", "synchronous=FULL"):
                connection.execute(f"PRAGMA {setting}").close()
        except BaseException:
            connection.close()
            raise

    return engine


def _create(path: Path) -> None:
    """Make a new database beside its place and put it there whole, so that an empty file is never ours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with lock_folder(path.parent, ".replan-create.lock"):
        for name in (fresh, Path(f"{fresh}-wal"), Path(f"{fresh}-shm"), Path(f"{fresh}-journal")):
            name.unlink(missing_ok=True)  # of a run that was killed
        engine = create_engine(URL.create("sqlite", database=os.fspath(fresh)))
        with engine.begin() as connection:
            connection.execute(text(f"PRAGMA application_id={_OURS}"))
        migrate(engine)
        engine.dispose()
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(fresh, path)
        fresh.unlink()
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
