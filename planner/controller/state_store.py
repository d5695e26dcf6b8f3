"""The loop's record: its state, and every look with its inputs, its decision and what came of it.

A look is written in one transaction: the next state, the decision and the manifest it wants are there
together or not at all. Writing that manifest follows, and is done over by the next run if it was cut off.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, text, union, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from libra_plan.errors import LockedError, StateError
from libra_plan.planner.controller import store_schema as s
from libra_plan.planner.controller.decision import Decision
from libra_plan.planner.controller.policy import ReplanPolicy, RetentionPolicy
from libra_plan.planner.controller.reconcile import Looked
from libra_plan.planner.controller.record import digest_of, from_bytes, packed, to_bytes, unpacked
from libra_plan.planner.controller.snapshot import LookInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.store_open import damaged, open_engine
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import Moment, Observations

__all__ = ["LookRow", "StateStore"]

SNAPSHOT_EVERY = 50  # looks between two kept states; replay begins at one
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class _Given:
    """A look's inputs without its problem, which many looks share."""

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
        """Tell whether the next state counts the change as made."""
        return self.outcome in ("pending", "applied")


class StateStore:
    """Reads and writes the record. `holder` names this planner where several share a database."""

    def __init__(self, engine: Engine, where: Path | str, holder: str = "") -> None:
        self._engine, self._where, self._holder = engine, where, holder

    @staticmethod
    def open(where: Path | str, *, create: bool = True, holder: str = "") -> StateStore:
        """Open a record; see `open_engine`."""
        return StateStore(open_engine(where, create=create), where, holder)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction; damage that shows only now is told like damage seen at the start."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except DBAPIError as problem:
            if isinstance(self._where, Path):
                raise damaged(self._where, problem.orig) from None
            first = str(problem.orig).strip().splitlines()[0]
            raise StateError("the database refused", got=first) from None

    def _decoded(self, data: bytes, kind: type[ValueT], digest: str | None) -> ValueT:
        try:
            raw = unpacked(data)
            if digest is not None and digest_of(raw) != digest:
                raise self.damage(f"bytes that are not {digest}")
            return from_bytes(raw, kind)
        except (zlib.error, msgspec.MsgspecError, ValueError) as problem:
            raise self.damage(problem) from None

    def damage(self, what: object) -> StateError:
        """Say that the record cannot be trusted; nothing is written to it."""
        return damaged(self._where if isinstance(self._where, Path) else Path("the database"), what)

    # ------------------------------------------------------------ state and looks

    def state(self) -> LoopState:
        """Read the state after the last look; a fresh one when there was none."""
        with self.begin() as connection:
            row = connection.execute(select(s.current.c.digest, s.current.c.data)).first()
            looked = row is None and connection.execute(select(func.max(s.looks.c.id))).scalar()
        if looked:  # to begin anew in silence would forget lost GPUs, stays and who waits
            raise self.damage(f"{looked} looks and no state after them")
        return LoopState() if row is None else self._decoded(row.data, LoopState, row.digest)

    def record(
        self,
        inputs: LookInputs,
        before: LoopState,
        looked: Looked,
        outcome: str,
        *,
        parent: str | None = None,
        manifest: tuple[str, bytes] | None = None,
    ) -> int:
        """Write a look and the next state; gives the look's number."""
        adopted = outcome in ("pending", "applied")
        after = to_bytes(looked.adopted if adopted else looked.kept)
        was, problem = to_bytes(before), to_bytes(inputs.problem)
        today = None if inputs.today is None else to_bytes(inputs.today)
        today_digest = None if today is None else digest_of(today)
        given = _Given(inputs.policy, inputs.now, inputs.window, inputs.paused, inputs.rigid, today_digest)
        with self.begin() as connection:
            self._require_lead(connection)
            number = (connection.execute(select(func.max(s.looks.c.id))).scalar() or 0) + 1
            self._keep(connection, problem, "problem")
            if today is not None:
                self._keep(connection, today, "problem")
            if number % SNAPSHOT_EVERY == 1:
                self._keep(connection, was, "state")
            if manifest is not None:
                self._keep(connection, manifest[1], "manifest", manifest[0])
            connection.execute(
                insert(s.looks).values(
                    id=number,
                    wall_s=inputs.now.wall_s,
                    problem=digest_of(problem),
                    today=today_digest,
                    state_before=digest_of(was),
                    state_after=digest_of(after),
                    inputs=packed(to_bytes(given)),
                    outcome=outcome,
                    parent=parent,
                    manifest=None if manifest is None else manifest[0],
                    **_told(looked.decision),
                )
            )
            connection.execute(delete(s.current))
            connection.execute(insert(s.current).values(one=1, digest=digest_of(after), data=packed(after)))
        return number

    def _keep(self, connection: Connection, data: bytes, kind: str, digest: str | None = None) -> None:
        name = digest or digest_of(data)
        known = connection.execute(select(s.blobs.c.digest).where(s.blobs.c.digest == name)).first()
        if known is None:
            connection.execute(insert(s.blobs).values(digest=name, kind=kind, data=packed(data)))

    def settle(self, number: int, outcome: str) -> None:
        """Say what became of a pending look."""
        with self.begin() as connection:
            connection.execute(update(s.looks).where(s.looks.c.id == number).values(outcome=outcome))

    def looks(self, *, newest: int | None = None, first: int = 0) -> list[LookRow]:
        """List looks in order, from number `first` on, or the newest so many."""
        columns = [getattr(s.looks.c, name) for name in LookRow.__dataclass_fields__]
        query = select(*columns).where(s.looks.c.id >= first).order_by(s.looks.c.id.desc())
        if newest is not None:
            query = query.limit(newest)
        with self.begin() as connection:
            rows: Sequence[Row[Any]] = connection.execute(query).all()
        return [LookRow(*row) for row in reversed(rows)]

    def pending(self) -> list[LookRow]:
        """List looks whose manifest was decided for and perhaps not written."""
        return [row for row in self.looks(newest=SNAPSHOT_EVERY) if row.outcome == "pending"]

    def decision(self, number: int) -> Decision:
        """Read the decision of a look."""
        row = self._row(number)
        return self._decoded(row.decision, Decision, row.decision_digest)

    def inputs(self, number: int, problem: Problem | None = None) -> LookInputs:
        """Read the inputs of a look; `problem` saves reading one that is known."""
        row = self._row(number)
        given = self._decoded(row.inputs, _Given, None)
        found = problem or self.problem(row.problem)
        today = None if given.today is None else self.problem(given.today)
        return LookInputs(found, given.policy, given.now, given.window, given.paused, given.rigid, today)

    def problem(self, digest: str) -> Problem:
        """Read a problem by its digest."""
        return self._decoded(self._blob(digest), Problem, digest)

    def state_at(self, digest: str) -> LoopState | None:
        """Read a kept state; None when that one was not kept."""
        with self.begin() as connection:
            data = connection.execute(select(s.blobs.c.data).where(s.blobs.c.digest == digest)).scalar()
        return None if data is None else self._decoded(data, LoopState, digest)

    def manifest(self, digest: str) -> bytes:
        """Read a manifest's text."""
        return unpacked(self._blob(digest))

    def _blob(self, digest: str) -> bytes:
        with self.begin() as connection:
            data = connection.execute(select(s.blobs.c.data).where(s.blobs.c.digest == digest)).scalar()
        if data is None:
            raise self.damage(f"{digest} is missing")
        return bytes(data)

    def _row(self, number: int) -> Row[Any]:
        with self.begin() as connection:
            row = connection.execute(select(s.looks).where(s.looks.c.id == number)).first()
            last = connection.execute(select(func.min(s.looks.c.id), func.max(s.looks.c.id))).one()
        if row is None:
            known = "none yet" if last[0] is None else f"{last[0]} to {last[1]}"
            raise StateError("there is no such look", got=number, allowed=known)
        return row

    # ------------------------------------------------------------ housekeeping

    def forget(self, retention: RetentionPolicy, now_s: float) -> int:
        """Drop looks beyond the retention, from the oldest to a kept state; gives their number."""
        with self.begin() as connection:
            most = connection.execute(select(func.max(s.looks.c.id))).scalar() or 0
            old = connection.execute(
                select(func.max(s.looks.c.id)).where(s.looks.c.wall_s < now_s - retention.days * 86400.0)
            ).scalar()
            last = max(most - retention.looks, old or 0)
            last -= last % SNAPSHOT_EVERY  # the first that stays has its state
            gone = connection.execute(delete(s.looks).where(s.looks.c.id <= last)).rowcount
            if gone:
                connection.execute(delete(s.outcomes).where(s.outcomes.c.look <= last))
                named = (s.looks.c.problem, s.looks.c.today, s.looks.c.state_before, s.looks.c.manifest)
                keep = union(*(select(column).where(column.is_not(None)) for column in named)).subquery()
                connection.execute(delete(s.blobs).where(s.blobs.c.digest.not_in(select(keep.c[0]))))
        return int(gone)

    # ------------------------------------------------------------ who leads

    def lead(self, for_s: float) -> None:
        """Take or renew the lease for some seconds; LockedError when another planner has it.

        A SQLite file needs none: the lock of its folder keeps others out.
        """
        if self._engine.dialect.name == "sqlite":
            return
        with self.begin() as connection:
            now = float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
            mine = (s.lease.c.holder == self._holder) | (s.lease.c.until_s < now)
            taken = connection.execute(
                update(s.lease)
                .where(s.lease.c.name == "leader", mine)
                .values(holder=self._holder, until_s=now + for_s)
            )
            if taken.rowcount:
                return
            row = connection.execute(select(s.lease.c.holder, s.lease.c.until_s)).first()
            if row is None:
                values = {"name": "leader", "holder": self._holder, "until_s": now + for_s}
                try:
                    with connection.begin_nested():
                        connection.execute(insert(s.lease).values(**values))
                    return
                except IntegrityError:
                    row = connection.execute(select(s.lease.c.holder, s.lease.c.until_s)).one()
        raise LockedError(
            "another planner leads",
            got=f"{row.holder}, for {max(0.0, row.until_s - now):.0f} s more",
            way_out="wait for it, or stop it",
        )

    def resign(self) -> None:
        """Give the lease back, so that another planner need not wait for its end."""
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


def _told(decision: Decision) -> dict[str, object]:
    """Give the columns that a decision fills."""
    data = to_bytes(decision)
    return {
        "decision": packed(data),
        "decision_digest": digest_of(data),
        "rung": decision.rung.value,
        "rule": decision.rule,
        "why": decision.why,
        "gain": decision.gain,
        "net": decision.net,
        "cost": decision.cost,
    }
