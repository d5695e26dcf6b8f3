"""Open the loop's record: a SQLite file that is whole and ours, or PostgreSQL by its URL."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from sqlalchemy import URL, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from libra_plan.errors import StateError, Where
from libra_plan.planner.controller.store_schema import migrate
from libra_plan.planner.launchers.store import lock_folder
from libra_plan.profiles.document import shown

__all__ = ["DATABASE", "open_engine"]

DATABASE = "replan.db"
_OURS = 0x4C504C4E  # SQLite's application_id: the file says whose it is
_HEADER = b"SQLite format 3\0"


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
