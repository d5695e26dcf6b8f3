"""The job queue: users add, remove, pause, resume and weigh tasks.

A request is noted in the record; the next look acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from libra_plan.errors import InputError, WorkloadError
from libra_plan.planner.controller import store_schema as s
from libra_plan.planner.controller.state import LoopState, read_clocks
from libra_plan.planner.controller.store import StateStore, open_record, require_folder
from libra_plan.planner.launchers.store import read_current
from libra_plan.profiles.catalog import load_workload
from libra_plan.profiles.schema import TaskSpec, WorkloadFile

__all__ = [
    "TaskQueue",
    "TaskRequest",
    "add_tasks",
    "change_task",
    "forget_removed",
    "list_tasks",
    "paused_tasks",
    "read_requests",
    "waits_of",
    "with_requests",
]


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A user's request for a task: `state` is `added`, `removed`, `paused` or `wanted`."""

    id: str
    state: str
    weight: float | None
    tier: int | None
    spec: str | None
    since_s: float
    reason: str


def read_requests(store: StateStore) -> tuple[TaskRequest, ...]:
    """Read the users' requests."""
    with store.begin() as connection:
        rows = connection.execute(select(s.tasks).order_by(s.tasks.c.id)).all()
    requests = tuple(TaskRequest(*row) for row in rows)
    for request in requests:
        try:
            _spec_of(request)
        except msgspec.MsgspecError as problem:
            raise store.damage(f"the added task {request.id}: {problem}") from None
    return requests


def _spec_of(request: TaskRequest) -> TaskSpec | None:
    return None if request.spec is None else msgspec.json.decode(request.spec, type=TaskSpec)


def paused_tasks(requests: Iterable[TaskRequest]) -> frozenset[str]:
    """Return the tasks that are to pause."""
    return frozenset(request.id for request in requests if request.state == "paused")


@dataclass(frozen=True)
class TaskQueue:
    """The users' requests, and how long queued tasks have waited, seconds."""

    asked: tuple[TaskRequest, ...]
    waits_s: dict[str, float]


def add_tasks(run: str | Path, file: str | Path, *, reason: str = "", state: str | None = None) -> list[str]:
    """Add the tasks of a workload file to the queue of a run; the next look acts on it.

    Parameters
    ----------
    run
        The folder of the running plan.
    file
        A file like `workload.yaml` with the tasks to add: all of them are, or none.
    reason
        Why, for the record.
    state
        The record, as in `replan`.

    Returns
    -------
    list of str
        The names of the tasks that were added.

    Raises
    ------
    InputError
        When the file is wrong, or the plan has such a task already.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> lp.add_tasks("run/", lp.load("profiles").path / "workload.yaml")
    Traceback (most recent call last):
    ...
    libra_plan.errors.InputError: there is such a task already; got agent-7b; ...
    """
    specs, folder = load_workload(Path(file))[0].tasks, Path(run)
    require_folder(folder)
    with open_record(folder, state) as store:
        planned = _planned(folder)
        planned -= {request.id for request in read_requests(store) if request.state == "removed"}
        with store.begin() as connection:
            for spec in specs:
                if spec.id in planned:  # otherwise the workload file's task would silently replace it
                    raise _there_already(spec.id)
                _note(connection, spec.id, "add", reason, spec=msgspec.json.encode(spec).decode())
    return [spec.id for spec in specs]


def change_task(
    run: str | Path,
    task: str,
    change: str,
    *,
    weight: float | None = None,
    tier: int | None = None,
    reason: str = "",
    state: str | None = None,
) -> None:
    """Request a change of one task; the next look acts on it.

    Parameters
    ----------
    run
        The folder of the running plan.
    task
        The name of the task.
    change
        `remove`, `pause`, `resume`, or `priority` with a `weight`, a `tier` or both.
    weight, tier
        What the task counts in the objective, and its tier under the policy `priority`.
    reason
        Why, for the record.
    state
        The record, as in `replan`.

    Raises
    ------
    InputError
        When there is no such task, or nothing to set.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> lp.change_task("run/", "eval-7b", "pause", reason="maintenance")
    """
    if change == "priority" and weight is None and tier is None:
        raise InputError("nothing to set", allowed="weight (--weight), tier (--tier) or both")
    folder = Path(run)
    require_folder(folder)
    with open_record(folder, state) as store:
        known = {request.id for request in read_requests(store)} | {name for name, _ in store.state().tasks}
        known |= _planned(folder)
        if task not in known:
            raise InputError("no such task", got=task, allowed=", ".join(sorted(known)) or "none yet")
        with store.begin() as connection:
            _note(connection, task, change, reason, weight=weight, tier=tier)


def list_tasks(run: str | Path, *, state: str | None = None) -> TaskQueue:
    """List the users' requests for the tasks of a run, and how long queued tasks have waited.

    Parameters
    ----------
    run
        The folder of the running plan.
    state
        The record, as in `replan`.

    Returns
    -------
    TaskQueue
        The requests by task, and the waits in seconds.

    Raises
    ------
    StateError
        When nothing was recorded yet, or the record is damaged.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> lp.change_task("run/", "eval-7b", "priority", weight=4.0)
    >>> [(request.id, request.weight) for request in lp.list_tasks("run/").asked]
    [('eval-7b', 4.0)]
    """
    with open_record(Path(run), state, create=False) as store:
        return TaskQueue(read_requests(store), waits_of(store.state()))


def _there_already(task: str) -> InputError:
    return InputError("there is such a task already", got=task, way_out=f"libra-plan task remove {task}")


def _note(connection: Connection, task: str, what: str, reason: str, **given: object) -> None:
    """Write a request and a line of the log; arguments that are None keep the earlier request's values."""
    row = connection.execute(select(s.tasks).where(s.tasks.c.id == task)).first()
    known = None if row is None else TaskRequest(*row)
    if what == "add" and known is not None and known.spec is not None and known.state != "removed":
        raise _there_already(task)
    if what == "pause" and known is not None and known.state == "removed":
        raise InputError("this task is removed already", got=task, way_out="libra-plan task add FILE")
    states = {"add": "added", "remove": "removed", "pause": "paused", "resume": "wanted"}
    values = {name: value for name, value in given.items() if value is not None}
    now_s = read_clocks().wall_s
    values |= {"since_s": now_s, "reason": reason}
    if known is None:
        values["state"] = states.get(what, "wanted")
        connection.execute(insert(s.tasks).values(id=task, **values))
    else:
        values["state"] = states.get(what, known.state)
        connection.execute(update(s.tasks).where(s.tasks.c.id == task).values(**values))
    connection.execute(insert(s.task_log).values(wall_s=now_s, task=task, what=what, reason=reason))


def forget_removed(store: StateStore, running: Iterable[str]) -> None:
    """Drop added tasks that were removed and no longer run."""
    gone = (s.tasks.c.state == "removed") & s.tasks.c.spec.is_not(None) & s.tasks.c.id.not_in(list(running))
    with store.begin() as connection:
        connection.execute(delete(s.tasks).where(gone))


def with_requests(
    workload: WorkloadFile, requests: Iterable[TaskRequest], waited_s: Mapping[str, float]
) -> WorkloadFile:
    """Return the workload with users' requests: the file's tasks and those added, without those removed.

    `waited_s` is how long tasks have been queued; it adds to their weight where `aging_s` says so.
    """
    asked = {request.id: request for request in requests}
    added = {name: spec for name, request in asked.items() if (spec := _spec_of(request)) is not None}
    listed = {task.id: task for task in workload.tasks}
    listed |= {name: spec for name, spec in added.items() if name not in listed}
    tasks = []
    for name, task in listed.items():
        request = asked.get(name)
        if request is not None and request.state == "removed":
            continue
        changes: dict[str, float] = {}
        if request is not None and request.weight is not None:
            changes["weight"] = request.weight
        if request is not None and request.tier is not None:
            changes["tier"] = request.tier
        if name in waited_s:
            changes["waited_s"] = max(task.waited_s, waited_s[name])
        tasks.append(msgspec.structs.replace(task, **changes))
    if not tasks:
        raise WorkloadError("no task is left: all were removed", way_out="libra-plan task add FILE")
    return msgspec.structs.replace(workload, tasks=tuple(tasks))


def waits_of(state: LoopState) -> dict[str, float]:
    """Return how long each queued task has waited, seconds."""
    now = state.clock.loop_s
    return {c.task: now - c.waits_since_s for c in state.clocks if c.waits_since_s is not None}


def _planned(folder: Path) -> set[str]:
    """Return the tasks of the plan, those that wait included."""
    manifest = read_current(folder).manifest
    if manifest is None:
        return set()
    return {entry.id for entry in manifest.spec.tasks} | {entry.task for entry in manifest.spec.queued}
