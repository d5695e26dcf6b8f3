"""The queue as its users steer it: tasks added, removed, paused, resumed, weighed; with who waits and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from libra_plan.errors import InputError, WorkloadError
from libra_plan.planner.controller import store_schema as s
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.state_store import StateStore
from libra_plan.planner.launchers.store import read_current
from libra_plan.profiles.schema import TaskSpec, WorkloadFile

__all__ = [
    "TaskBook",
    "TaskRow",
    "add_tasks",
    "change_task",
    "merged",
    "read_book",
    "require_known",
    "waits_of",
]


@dataclass(frozen=True, slots=True)
class TaskRow:
    """What users said of a task: `state` is `added`, `removed`, `paused` or `wanted`."""

    id: str
    state: str
    weight: float | None
    tier: int | None
    spec: str | None
    since_s: float
    reason: str


@dataclass(frozen=True)
class TaskBook:
    """All rows by task."""

    rows: tuple[TaskRow, ...]

    @property
    def paused(self) -> frozenset[str]:
        """Name the tasks that are to pause."""
        return frozenset(row.id for row in self.rows if row.state == "paused")


def read_book(store: StateStore) -> TaskBook:
    """Read what users said."""
    with store.begin() as connection:
        found = connection.execute(select(s.tasks).order_by(s.tasks.c.id)).all()
    rows = tuple(TaskRow(*row) for row in found)
    for row in rows:
        try:
            _ = None if row.spec is None else msgspec.json.decode(row.spec, type=TaskSpec)
        except msgspec.MsgspecError as problem:
            raise store.damage(f"the added task {row.id}: {problem}") from None
    return TaskBook(rows)


def add_tasks(
    store: StateStore, folder: Path, specs: Iterable[TaskSpec], now_s: float, reason: str = ""
) -> None:
    """Put tasks into the queue, all of them or none; one that the plan has already is refused.

    It would lose against the workload file's, in silence.
    """
    planned = _planned(folder)
    removed = {row.id for row in read_book(store).rows if row.state == "removed"}
    with store.begin() as connection:
        for spec in specs:
            if spec.id in planned - removed:
                raise _there_already(spec.id)
            _note(connection, spec.id, "add", now_s, reason=reason, spec=spec)


def _there_already(task: str) -> InputError:
    return InputError("there is such a task already", got=task, way_out=f"libra-plan task remove {task}")


def change_task(
    store: StateStore,
    task: str,
    what: str,
    now_s: float,
    *,
    reason: str = "",
    weight: float | None = None,
    tier: int | None = None,
    spec: TaskSpec | None = None,
) -> None:
    """Note a user's wish: `add`, `remove`, `pause`, `resume` or `priority`; the next look acts on it."""
    with store.begin() as connection:
        _note(connection, task, what, now_s, reason=reason, weight=weight, tier=tier, spec=spec)


def _note(
    connection: Connection,
    task: str,
    what: str,
    now_s: float,
    *,
    reason: str,
    weight: float | None = None,
    tier: int | None = None,
    spec: TaskSpec | None = None,
) -> None:
    row = connection.execute(select(s.tasks).where(s.tasks.c.id == task)).first()
    known = None if row is None else TaskRow(*row)
    if what == "add" and known is not None and known.spec is not None and known.state != "removed":
        raise _there_already(task)
    if what == "pause" and known is not None and known.state == "removed":
        raise InputError("this task is removed already", got=task, way_out="libra-plan task add FILE")
    states = {"add": "added", "remove": "removed", "pause": "paused"}
    before = "wanted" if known is None else known.state
    state = states.get(what, "wanted" if what == "resume" else before)
    values = {
        "state": state,
        "weight": weight if weight is not None else None if known is None else known.weight,
        "tier": tier if tier is not None else None if known is None else known.tier,
        "spec": msgspec.json.encode(spec).decode()
        if spec is not None
        else None
        if known is None
        else known.spec,
        "since_s": now_s,
        "reason": reason,
    }
    if known is None:
        connection.execute(insert(s.tasks).values(id=task, **values))
    else:
        connection.execute(update(s.tasks).where(s.tasks.c.id == task).values(**values))
    connection.execute(insert(s.task_log).values(wall_s=now_s, task=task, what=what, reason=reason))


def forget_removed(store: StateStore, running: Iterable[str]) -> None:
    """Drop added tasks that were removed and no longer run."""
    with store.begin() as connection:
        gone = (
            (s.tasks.c.state == "removed") & s.tasks.c.spec.is_not(None) & s.tasks.c.id.not_in(list(running))
        )
        connection.execute(delete(s.tasks).where(gone))


def merged(workload: WorkloadFile, book: TaskBook, waited_s: dict[str, float]) -> WorkloadFile:
    """Give the workload as users want it now: the file's tasks, those added, without those removed.

    `waited_s` is how long tasks have been queued, which adds to their weight where `aging_s` says so.
    """
    rows = {row.id: row for row in book.rows}
    listed = {task.id: task for task in workload.tasks}
    added = (msgspec.json.decode(row.spec, type=TaskSpec) for row in book.rows if row.spec is not None)
    listed = {**{task.id: task for task in added}, **listed}
    tasks = []
    for name in [
        *(task.id for task in workload.tasks),
        *(n for n in listed if n not in {t.id for t in workload.tasks}),
    ]:
        row, task = rows.get(name), listed[name]
        if row is not None and row.state == "removed":
            continue
        if row is not None and row.weight is not None:
            task = msgspec.structs.replace(task, weight=row.weight)
        if row is not None and row.tier is not None:
            task = msgspec.structs.replace(task, tier=row.tier)
        if name in waited_s:
            task = msgspec.structs.replace(task, waited_s=max(task.waited_s, waited_s[name]))
        tasks.append(task)
    if not tasks:
        raise WorkloadError("no task is left: all were removed", way_out="libra-plan task add FILE")
    return msgspec.structs.replace(workload, tasks=tuple(tasks))


def waits_of(state: LoopState) -> dict[str, float]:
    """Give how long each queued task has waited, seconds."""
    now = state.clock.loop_s
    return {c.task: now - c.waits_since_s for c in state.clocks if c.waits_since_s is not None}


def require_known(store: StateStore, folder: Path, task: str) -> None:
    """Refuse a task that neither the plan nor the queue has; a slip of the pen would do nothing, silently."""
    known = {row.id for row in read_book(store).rows} | {name for name, _ in store.state().tasks}
    known |= _planned(folder)
    if task not in known:
        raise InputError("no such task", got=task, allowed=", ".join(sorted(known)) or "none yet")


def _planned(folder: Path) -> set[str]:
    """Name the tasks of the plan, those that wait included."""
    manifest = read_current(folder).manifest
    if manifest is None:
        return set()
    return {entry.id for entry in manifest.spec.tasks} | {entry.task for entry in manifest.spec.queued}
