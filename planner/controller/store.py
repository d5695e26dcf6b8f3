"""The record of the loop: its state, and every look with its inputs, its decision and what came of it.

A look is written in one transaction: the next state, the decision and the manifest it wants are there
together or not at all. Writing that manifest follows, and is done over by the next run if it was cut off.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, text, union, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from libra_plan.errors import LockedError, StateError, writing
from libra_plan.planner.controller import store_schema as s
from libra_plan.planner.controller.hysteresis import ReplanPolicy, RetentionPolicy
from libra_plan.planner.controller.reconcile import Reconciled
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import Decision, LoopState, digest_of, from_bytes, to_bytes
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import Moment, Observations

__all__ = ["LookRow", "OutcomeRow", "StateStore", "open_record", "require_folder"]

STATE_EVERY = 50  # looks between two kept states; replay begins at one
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class _RecordedInputs:
    """A look's inputs without its problems, which many looks share."""

    policy: ReplanPolicy
    now: Moment
    window: Observations | None
    paused: frozenset[str]
    rigid: frozenset[str]
    today: str | None


@dataclass(frozen=True)
class LookRow:
    """A recorded look. `outcome`: `kept`, `dry-run`, `pending`, `applied` or `superseded`."""

    id: int
    wall_s: float
    rung: str
    rule: str
    why: str
    gain: float | None
    net: float | None
    cost: float | None
    outcome: str
    problem: str
    state_before: str
    state_after: str
    decision_digest: str
    parent: str | None
    manifest: str | None

    @property
    def adopted(self) -> bool:
        """Whether the next state counts the change as made."""
        return self.outcome in ("pending", "applied")


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """What a change promised of a role's stage, and the seconds that a later look observed."""

    look: int
    task: str
    role: str
    predicted_s: float
    realised_s: float
    seen_at_look: int


class StateStore:
    """Reads and writes the record. `holder` names this planner where several share a database."""

    def __init__(self, engine: Engine, where: Path | str, holder: str = "") -> None:
        self._engine, self._where, self._holder = engine, where, holder

    @staticmethod
    def open(where: Path | str, *, create: bool = True, holder: str = "") -> StateStore:
        """Open a SQLite file, or a URL such as `postgresql+psycopg://host/name`."""
        return StateStore(s.open_engine(where, create=create), where, holder)

    def close(self) -> None:
        """Close the connection to the database."""
        self._engine.dispose()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction; report damage found now like damage found when opening."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except DBAPIError as problem:
            if isinstance(self._where, Path):
                raise s.damaged(self._where, problem.orig) from None
            first = str(problem.orig).strip().splitlines()[0]
            raise StateError("the database refused", got=first) from None

    def damage(self, what: object) -> StateError:
        """Return the error for a damaged record; nothing is written to it."""
        return s.damaged(self._where if isinstance(self._where, Path) else Path("the database"), what)

    def _decoded(self, data: bytes, kind: type[ValueT], digest: str | None) -> ValueT:
        try:
            raw = zlib.decompress(data)
            if digest is not None and digest_of(raw) != digest:
                raise self.damage(f"bytes that are not {digest}")
            return from_bytes(raw, kind)
        except (zlib.error, msgspec.MsgspecError, ValueError) as problem:
            raise self.damage(problem) from None

    # ------------------------------------------------------------ state and looks

    def state(self) -> LoopState:
        """Read the state after the last look; a fresh one when there was none."""
        with self.begin() as connection:
            row = connection.execute(select(s.current.c.digest, s.current.c.data)).first()
            looked = row is None and connection.execute(select(func.max(s.looks.c.id))).scalar()
        if looked:  # starting silently from a new state would forget lost GPUs, stays and waiting tasks
            raise self.damage(f"{looked} looks and no state after them")
        return LoopState() if row is None else self._decoded(row.data, LoopState, row.digest)

    def record(
        self,
        inputs: LoopInputs,
        before: LoopState,
        found: Reconciled,
        outcome: str,
        *,
        parent: str | None = None,
        manifest: tuple[str, bytes] | None = None,
    ) -> int:
        """Write a look and the next state; returns the look's number. `manifest` is its digest and text."""
        decision, decided = found.decision, to_bytes(found.decision)
        after = to_bytes(found.adopted if outcome in ("pending", "applied") else found.kept)
        was, problem = to_bytes(before), to_bytes(inputs.problem)
        today = None if inputs.today is None else to_bytes(inputs.today)
        today_digest = None if today is None else digest_of(today)
        given = _RecordedInputs(
            inputs.policy, inputs.now, inputs.window, inputs.paused, inputs.rigid, today_digest
        )
        with self.begin() as connection:
            self._require_lead(connection)
            number = (connection.execute(select(func.max(s.looks.c.id))).scalar() or 0) + 1
            _keep(connection, "problem", problem)
            if today is not None:
                _keep(connection, "problem", today)
            if number % STATE_EVERY == 1:
                _keep(connection, "state", was)
            if manifest is not None:
                _keep(connection, "manifest", manifest[1], manifest[0])
            connection.execute(
                insert(s.looks).values(
                    id=number,
                    wall_s=inputs.now.wall_s,
                    problem=digest_of(problem),
                    today=today_digest,
                    state_before=digest_of(was),
                    state_after=digest_of(after),
                    inputs=zlib.compress(to_bytes(given)),
                    decision=zlib.compress(decided),
                    decision_digest=digest_of(decided),
                    rung=decision.rung.value,
                    rule=decision.rule,
                    why=decision.why,
                    gain=decision.gain,
                    net=decision.net,
                    cost=decision.cost,
                    outcome=outcome,
                    parent=parent,
                    manifest=None if manifest is None else manifest[0],
                )
            )
            connection.execute(delete(s.current))
            values = {"one": 1, "digest": digest_of(after), "data": zlib.compress(after)}
            connection.execute(insert(s.current).values(**values))
        return number

    def settle(self, number: int, outcome: str) -> None:
        """Write the outcome of a pending look."""
        with self.begin() as connection:
            connection.execute(update(s.looks).where(s.looks.c.id == number).values(outcome=outcome))

    def looks(self, *, newest: int | None = None, first: int = 0) -> list[LookRow]:
        """List looks in order, from number `first` on, or the newest so many."""
        columns = [getattr(s.looks.c, name) for name in LookRow.__dataclass_fields__]
        query = select(*columns).where(s.looks.c.id >= first).order_by(s.looks.c.id.desc()).limit(newest)
        with self.begin() as connection:
            rows = connection.execute(query).all()
        return [LookRow(*row) for row in reversed(rows)]

    def pending(self) -> list[LookRow]:
        """List looks whose manifest was decided for and perhaps not written."""
        return [row for row in self.looks(newest=STATE_EVERY) if row.outcome == "pending"]

    def decision(self, number: int) -> Decision:
        """Read the decision of a look."""
        row = self._row(number)
        return self._decoded(row.decision, Decision, row.decision_digest)

    def inputs(self, number: int, problem: Problem | None = None) -> LoopInputs:
        """Read the inputs of a look; `problem` saves reading one that is known."""
        row = self._row(number)
        given = self._decoded(row.inputs, _RecordedInputs, None)
        today = None if given.today is None else self.problem(given.today)
        found = problem or self.problem(row.problem)
        return LoopInputs(found, given.policy, given.now, given.window, given.paused, given.rigid, today)

    def problem(self, digest: str) -> Problem:
        """Read a problem by its digest."""
        return self._decoded(self._blob(digest), Problem, digest)

    def state_at(self, digest: str) -> LoopState | None:
        """Read a kept state; None when that one was not kept."""
        data = self._find(digest)
        return None if data is None else self._decoded(data, LoopState, digest)

    def manifest(self, digest: str) -> bytes:
        """Read a manifest's text."""
        return zlib.decompress(self._blob(digest))

    def _find(self, digest: str) -> bytes | None:
        with self.begin() as connection:
            return connection.execute(select(s.blobs.c.data).where(s.blobs.c.digest == digest)).scalar()

    def _blob(self, digest: str) -> bytes:
        data = self._find(digest)
        if data is None:
            raise self.damage(f"{digest} is missing")
        return data

    def _row(self, number: int) -> Row[tuple[object, ...]]:
        with self.begin() as connection:
            row = connection.execute(select(s.looks).where(s.looks.c.id == number)).first()
            last = connection.execute(select(func.min(s.looks.c.id), func.max(s.looks.c.id))).one()
        if row is None:
            known = "none yet" if last[0] is None else f"{last[0]} to {last[1]}"
            raise StateError("there is no such look", got=number, allowed=known)
        return row

    # ------------------------------------------------------------ what came of decisions

    def note_outcomes(self, number: int, observed_s: Mapping[tuple[str, str], float]) -> None:
        """Note once, for the last applied look, the stage times of its tasks' roles observed now."""
        applied = [row for row in self.looks(newest=200) if row.outcome == "applied" and row.id < number]
        if not applied or not observed_s:
            return
        last = applied[-1].id
        decision = self.decision(last)
        moved = {move.task for move in decision.moves}
        plan = () if decision.plan is None else decision.plan.running
        known = {(row.task, row.role) for row in self.outcomes(last)}
        rows = [
            {
                "look": last,
                "task": task.task,
                "role": role.role,
                "predicted_s": role.choice.option.time_s.value,
                "realised_s": observed_s[task.task, role.role],
                "seen_at_look": number,
            }
            for task in plan
            for role in task.roles
            if task.task in moved and (task.task, role.role) in observed_s.keys() - known
        ]
        if rows:
            with self.begin() as connection:
                connection.execute(insert(s.outcomes), rows)

    def outcomes(self, look: int | None = None) -> list[OutcomeRow]:
        """List the outcomes of one look, or of every look, oldest first."""
        query = select(s.outcomes).order_by(s.outcomes.c.look)
        if look is not None:
            query = query.where(s.outcomes.c.look == look)
        with self.begin() as connection:
            return [OutcomeRow(*row) for row in connection.execute(query).all()]

    # ------------------------------------------------------------ housekeeping

    def forget(self, retention: RetentionPolicy, now_s: float) -> int:
        """Drop looks beyond the retention, from the oldest to a kept state; returns how many."""
        with self.begin() as connection:
            most = connection.execute(select(func.max(s.looks.c.id))).scalar() or 0
            old = connection.execute(
                select(func.max(s.looks.c.id)).where(s.looks.c.wall_s < now_s - retention.days * 86400.0)
            ).scalar()
            last = max(most - retention.looks, old or 0)
            last -= last % STATE_EVERY  # the first that stays has its state
            gone = connection.execute(delete(s.looks).where(s.looks.c.id <= last)).rowcount
            if gone:
                connection.execute(delete(s.outcomes).where(s.outcomes.c.look <= last))
                named = (s.looks.c.problem, s.looks.c.today, s.looks.c.state_before, s.looks.c.manifest)
                keep = union(*(select(column).where(column.is_not(None)) for column in named)).subquery()
                connection.execute(delete(s.blobs).where(s.blobs.c.digest.not_in(select(keep.c[0]))))
        return int(gone)

    # ------------------------------------------------------------ lease

    def lead(self, for_s: float) -> None:
        """Take or renew the lease for some seconds; LockedError when another planner has it.

        A SQLite file needs none: the lock of its folder keeps others out.
        """
        if self._engine.dialect.name == "sqlite":
            return
        with self.begin() as connection:
            now = float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
            values = {"holder": self._holder, "until_s": now + for_s}
            mine = (s.lease.c.holder == self._holder) | (s.lease.c.until_s < now)
            taken = update(s.lease).where(s.lease.c.name == "leader", mine).values(**values)
            if connection.execute(taken).rowcount:
                return
            row = connection.execute(select(s.lease.c.holder, s.lease.c.until_s)).first()
            if row is None:
                try:
                    with connection.begin_nested():
                        connection.execute(insert(s.lease).values(name="leader", **values))
                    return
                except IntegrityError:
                    row = connection.execute(select(s.lease.c.holder, s.lease.c.until_s)).one()
        raise LockedError(
            "another planner leads",
            got=f"{row.holder}, for {max(0.0, row.until_s - now):.0f} s more",
            way_out="wait for it, or stop it",
        )

    def resign(self) -> None:
        """Return the lease, so that another planner need not wait for its end."""
        if self._engine.dialect.name != "sqlite":
            with self.begin() as connection:
                mine = s.lease.c.holder == self._holder
                connection.execute(update(s.lease).where(mine).values(until_s=0.0))

    def _require_lead(self, connection: Connection) -> None:
        """Refuse to write for a planner whose lease another one has taken meanwhile."""
        if self._engine.dialect.name == "sqlite":
            return
        held = select(s.lease.c.holder).where(s.lease.c.name == "leader").with_for_update()
        holder = connection.execute(held).scalar()
        if holder != self._holder:
            raise LockedError("another planner has taken the lead meanwhile", got=holder)


def _keep(connection: Connection, kind: str, data: bytes, digest: str | None = None) -> None:
    """Store bytes under their digest, unless they are there already."""
    name = digest or digest_of(data)
    if connection.execute(select(s.blobs.c.digest).where(s.blobs.c.digest == name)).first() is None:
        connection.execute(insert(s.blobs).values(digest=name, kind=kind, data=zlib.compress(data)))


@contextmanager
def open_record(
    folder: Path, state: str | None = None, *, create: bool = True, lead: bool = False
) -> Iterator[StateStore]:
    """Open the record of a folder: RUN/replan.db, or the file or URL that `state` names.

    With `lead` the lease of a shared database is given back at the end.
    """
    where: Path | str = folder / s.DATABASE if state is None else state if "://" in state else Path(state)
    with writing(folder):
        store = StateStore.open(where, create=create, holder=f"{socket.gethostname()}:{os.getpid()}")
    try:
        yield store
    finally:
        if lead:
            store.resign()
        store.close()


def require_folder(folder: Path) -> None:
    """Refuse a folder that does not exist: a misspelt path would begin a record in a new one."""
    if not folder.is_dir():
        raise StateError(
            "there is no plan to look after",
            got=folder,
            way_out=f"make one first: libra-plan solve profiles/ --out {folder}",
        )
