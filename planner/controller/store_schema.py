"""Tables of the loop's record, the steps from one version of them to the next, and how a record is opened."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa
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
_OURS = 0x4C504C4E  # SQLite's application_id, which identifies our files
_HEADER = b"SQLite format 3\0"

_ALL = sa.MetaData()
meta = sa.Table(
    "libra_plan_meta", _ALL, sa.Column("name", sa.String(40), primary_key=True), sa.Column("value", sa.Text)
)
blobs = sa.Table(
    "blobs",
    _ALL,
    sa.Column("digest", sa.String(80), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
looks = sa.Table(
    "looks",
    _ALL,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("wall_s", sa.Float, nullable=False),
    sa.Column("problem", sa.String(80), nullable=False),
    sa.Column("today", sa.String(80)),
    sa.Column("state_before", sa.String(80), nullable=False),
    sa.Column("state_after", sa.String(80), nullable=False),
    sa.Column("decision_digest", sa.String(80), nullable=False),
    sa.Column("inputs", sa.LargeBinary, nullable=False),
    sa.Column("decision", sa.LargeBinary, nullable=False),
    sa.Column("rung", sa.String(20), nullable=False),
    sa.Column("rule", sa.String(20), nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("gain", sa.Float),
    sa.Column("net", sa.Float),
    sa.Column("cost", sa.Float),
    sa.Column("outcome", sa.String(12), nullable=False),
    sa.Column("parent", sa.String(80)),
    sa.Column("manifest", sa.String(80)),
)
current = sa.Table(
    "current_state",
    _ALL,
    sa.Column("one", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(80), nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
lease = sa.Table(
    "lease",
    _ALL,
    sa.Column("name", sa.String(20), primary_key=True),
    sa.Column("holder", sa.String(200), nullable=False),
    sa.Column("until_s", sa.Float, nullable=False),
)
tasks = sa.Table(
    "tasks",
    _ALL,
    sa.Column("id", sa.String(63), primary_key=True),
    sa.Column("state", sa.String(12), nullable=False),
    sa.Column("weight", sa.Float),
    sa.Column("tier", sa.Integer),
    sa.Column("spec", sa.Text),
    sa.Column("since_s", sa.Float, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
task_log = sa.Table(
    "task_log",
    _ALL,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("wall_s", sa.Float, nullable=False),
    sa.Column("task", sa.String(63), nullable=False),
    sa.Column("what", sa.String(20), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
outcomes = sa.Table(
    "outcomes",
    _ALL,
    sa.Column("look", sa.Integer, primary_key=True),
    sa.Column("task", sa.String(63), primary_key=True),
    sa.Column("role", sa.String(63), primary_key=True),
    sa.Column("predicted_s", sa.Float, nullable=False),
    sa.Column("realised_s", sa.Float, nullable=False),
    sa.Column("seen_at_look", sa.Integer, nullable=False),
)

VERSION = 2  # 1: the record; 2: the queue besides, and what came of decisions


def migrate(engine: sa.Engine) -> None:
    """Update a store to this version by adding the tables that it lacks; refuse a newer one."""
    with engine.begin() as connection:
        known = 0
        if sa.inspect(connection).has_table(meta.name):
            found = connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema")).scalar()
            known = 0 if found is None else int(found)
        if known > VERSION:
            raise StateError(
                "the state was written by a newer version",
                got=f"schema {known}",
                allowed=f"schema {VERSION} or older",
                way_out="update libra-plan, or name another state (--state)",
            )
        if known < VERSION:
            _ALL.create_all(connection)
            connection.execute(sa.delete(meta).where(meta.c.name == "schema"))
            connection.execute(sa.insert(meta).values(name="schema", value=str(VERSION)))


# ---------------------------------------------------------------- opening


def open_engine(where: Path | str, *, create: bool = True) -> sa.Engine:
    """Open a file or a URL such as `postgresql+psycopg://host/name`; refuse what is damaged or not ours."""
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


def _check_content(engine: sa.Engine, where: Path) -> None:
    """Refuse a database that is damaged or not ours."""
    try:
        with engine.connect() as connection:
            owner = connection.execute(sa.text("PRAGMA application_id")).scalar()
            said = connection.execute(sa.text("PRAGMA quick_check(1)")).scalar()
    except DBAPIError as problem:
        raise damaged(where, problem.orig) from None
    if said != "ok":
        raise damaged(where, said)
    if owner != _OURS:
        raise StateError(
            "this database is not libra-plan's", got=f"application_id {owner}", where=Where(shown(where))
        )


def damaged(where: Path, what: object) -> StateError:
    """Return the error for a damaged state file; nothing is written to it."""
    return StateError(
        "the state is damaged, and was left as it is",
        got=what,
        way_out="restore a copy, or move it away (with its -wal and -shm files) to begin a new record: "
        "the manifest and what runs are not in it",
        where=Where(shown(where)),
    )


def _by_url(url: str) -> sa.Engine:
    try:
        parsed: sa.URL = sa.make_url(url)
        engine = sa.create_engine(parsed, pool_pre_ping=True)
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


def _sqlite(path: Path) -> sa.Engine:
    engine = sa.create_engine(sa.URL.create("sqlite", database=os.fspath(path)))

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: sqlite3.Connection, _: object) -> None:
        try:
            for setting in ("busy_timeout=10000", "journal_mode=WAL", "synchronous=FULL"):
                connection.execute(f"PRAGMA {setting}").close()
        except BaseException:
            connection.close()
            raise

    return engine


def _create(path: Path) -> None:
    """Create a new database in a temporary file and move it into place, so that no file is ever half made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with lock_folder(path.parent, ".replan-create.lock"):
        for name in (fresh, Path(f"{fresh}-wal"), Path(f"{fresh}-shm"), Path(f"{fresh}-journal")):
            name.unlink(missing_ok=True)  # of a run that was killed
        engine = sa.create_engine(sa.URL.create("sqlite", database=os.fspath(fresh)))
        with engine.begin() as connection:
            connection.execute(sa.text(f"PRAGMA application_id={_OURS}"))
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
