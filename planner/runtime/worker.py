"""Functions for training loops, so that a task can be moved without losing steps; standard library only.

docs/hand-over.md shows a training loop with all of them.

A checkpoint is the folder `step-000000042` below LIBRA_PLAN_CHECKPOINT_DIR. Its `complete.json` is
written last and atomically, so a folder without one, or with a file that is missing or of another
size, is not complete. With several ranks, rank 0 alone calls `save_complete`, after all have written.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libra_plan.profiles.durable import sync, write_atomically

__all__ = [
    "COMPLETE",
    "REQUEST",
    "Complete",
    "Request",
    "await_release",
    "checkpoint_requested",
    "latest_complete",
    "read_complete",
    "read_request",
    "report",
    "save_complete",
    "step_folder",
]

COMPLETE = "complete.json"
REQUEST = "request.json"
_MARKS = ("polls", "loading", "loaded", "warm")


@dataclass(frozen=True)
class Request:
    """An order to save: `id` comes back in the checkpoint that answers it; `drain`: finish what is begun."""

    id: str
    generation: int
    drain: bool = True


@dataclass(frozen=True)
class Complete:
    """A complete checkpoint: all its files are there, in the sizes they were written with.

    `save_s` are the seconds from `step_folder` to `save_complete`, None when that was not called.
    """

    step: int
    folder: Path
    generation: int | None
    world_size: int | None
    request: str | None
    save_s: float | None = None


@dataclass
class _Own:
    """The requests to this process, and when it began to save."""

    pending: str | None = None
    answered: str | None = None
    saving_since_s: float | None = None
    reported: tuple[str, ...] = ()


_own = _Own()


def _folder(directory: str | os.PathLike[str] | None) -> Path | None:
    given = os.environ.get("LIBRA_PLAN_CHECKPOINT_DIR") if directory is None else directory
    return None if not given else Path(given)


def _required(directory: str | os.PathLike[str] | None) -> Path:
    folder = _folder(directory)
    if folder is None:
        raise RuntimeError("where do checkpoints lie? set checkpoint_dir of the task, or pass `directory`")
    return folder


def checkpoint_requested(directory: str | os.PathLike[str] | None = None) -> Request | None:
    """Return the request that this process has not answered yet.

    A request to another generation is not for this process. Reading a file that is mostly absent,
    it may be called after every step.

    Parameters
    ----------
    directory
        Folder of the task's checkpoints; LIBRA_PLAN_CHECKPOINT_DIR unless given.

    Returns
    -------
    Request or None
        None when there is none, or no folder is known.

    Raises
    ------
    OSError
        If the progress of the role cannot be reported.

    Examples
    --------
    >>> import libra_plan
    >>> libra_plan.checkpoint_requested("checkpoints") is None
    True
    """
    folder = _folder(directory)
    if folder is None:
        return None
    report("polls")
    request = read_request(folder)
    own = _generation()
    if request is None or request.id == _own.answered or own not in (None, request.generation):
        return None
    _own.pending = request.id
    return request


def step_folder(step: int, directory: str | os.PathLike[str] | None = None) -> Path:
    """Make the folder for the files of a step's checkpoint, and note that saving begins.

    Parameters
    ----------
    step
        Number of the step.
    directory
        Folder of the task's checkpoints; LIBRA_PLAN_CHECKPOINT_DIR unless given.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    RuntimeError
        If no folder of checkpoints is known.

    Examples
    --------
    >>> import libra_plan
    >>> libra_plan.step_folder(42, "checkpoints").name
    'step-000000042'
    """
    folder = _required(directory) / f"step-{step:09d}"
    folder.mkdir(parents=True, exist_ok=True)
    _own.saving_since_s = time.monotonic()
    return folder


def save_complete(
    step: int,
    files: Iterable[str | os.PathLike[str]],
    directory: str | os.PathLike[str] | None = None,
    *,
    world_size: int | None = None,
) -> Path:
    """Declare a step's checkpoint complete, and the pending request answered.

    The files are forced to disk before `complete.json` names them.

    Parameters
    ----------
    step
        Number of the step.
    files
        Paths below the step's folder, whole and closed.
    directory
        Folder of the task's checkpoints; LIBRA_PLAN_CHECKPOINT_DIR unless given.
    world_size
        Number of ranks that the checkpoint is of; WORLD_SIZE unless given.

    Returns
    -------
    Path
        The step's folder.

    Raises
    ------
    RuntimeError
        If no folder of checkpoints is known.
    OSError
        If a file is not there or cannot be forced to disk.

    Examples
    --------
    >>> import libra_plan
    >>> folder = libra_plan.step_folder(42, "checkpoints")
    >>> (folder / "model.pt").write_bytes(b"weights")
    7
    >>> libra_plan.save_complete(42, ["model.pt"], "checkpoints") == folder
    True
    """
    folder = _required(directory) / f"step-{step:09d}"
    entries = []
    for name in files:
        path = folder / name
        sync(path)
        entries.append({"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size})
    for inner in {(folder / str(entry["path"])).parent for entry in entries}:
        sync(inner)
    ranks = os.environ.get("WORLD_SIZE", "1") if world_size is None else world_size
    began = _own.saving_since_s
    complete = {
        "step": int(step),
        "generation": _generation(),
        "world_size": int(ranks),
        "request": _own.pending,
        "files": entries,
        "save_s": None if began is None else time.monotonic() - began,
        "saved_at_s": time.time(),
    }
    write_atomically(folder / COMPLETE, json.dumps(complete).encode())
    sync(folder.parent)
    _own.answered, _own.pending, _own.saving_since_s = _own.pending or _own.answered, None, None
    return folder


def await_release(directory: str | os.PathLike[str] | None = None, *, poll_s: float = 0.1) -> None:
    """Wait after an answered request until it is withdrawn: the move was called off, so go on.

    Normally the stop signal ends the process here. Ending with status 0 instead is allowed, too.

    Parameters
    ----------
    directory
        Folder of the task's checkpoints; LIBRA_PLAN_CHECKPOINT_DIR unless given.
    poll_s
        Seconds between looks.

    Raises
    ------
    RuntimeError
        If no folder of checkpoints is known.

    Examples
    --------
    >>> import libra_plan
    >>> libra_plan.await_release("checkpoints")
    """
    folder = _required(directory)
    while _own.answered is not None:
        request = read_request(folder)
        if request is None or request.id != _own.answered:
            return
        time.sleep(poll_s)


def latest_complete(directory: str | os.PathLike[str] | None = None) -> Complete | None:
    """Find the newest complete checkpoint; unfinished and damaged ones do not count.

    Parameters
    ----------
    directory
        Folder of the task's checkpoints; LIBRA_PLAN_CHECKPOINT_DIR unless given.

    Returns
    -------
    Complete or None
        None when there is none, or no folder is known.

    Raises
    ------
    OSError
        If the folder cannot be listed.

    Examples
    --------
    >>> import libra_plan
    >>> libra_plan.latest_complete("checkpoints") is None
    True
    """
    folder = _folder(directory)
    if folder is None or not folder.is_dir():
        return None
    for path in sorted(folder.glob("step-*"), key=_step_of, reverse=True):
        found = read_complete(path)
        if found is not None:
            return found
    return None


def report(mark: str) -> None:
    """Report the progress of this process to the supervisor: `loading`, `loaded`, `warm` (first step done).

    The supervisor computes from these how long starting, loading and warming up take. Only rank 0
    reports, each mark once, and only where a supervisor listens.

    Parameters
    ----------
    mark
        `loading`, `loaded` or `warm`.

    Raises
    ------
    ValueError
        If the mark is none of these.
    OSError
        If the file of the supervisor cannot be written to.

    Examples
    --------
    >>> import libra_plan
    >>> libra_plan.report("loading")
    """
    if mark not in _MARKS:
        raise ValueError(f"unknown mark {mark!r}; allowed: {', '.join(_MARKS)}")
    path = os.environ.get("LIBRA_PLAN_PROGRESS_FILE")
    if mark in _own.reported or not path or os.environ.get("RANK", "0") != "0":
        return
    _own.reported = (*_own.reported, mark)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)  # the clock of the supervisor's journal
    line = json.dumps({"mark": mark, "boot_s": now, "pid": os.getpid()}) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read_request(folder: Path) -> Request | None:
    """Read a task's request; None when there is none."""
    data = _read(folder / REQUEST)
    try:
        generation = None if data is None else _whole(data["generation"])
        if data is None or generation is None:
            return None
        return Request(str(data["id"]), generation, bool(data["drain"]))
    except KeyError:
        return None


def read_complete(folder: Path) -> Complete | None:
    """Read a step's checkpoint, if it is complete."""
    data = _read(folder / COMPLETE)
    if data is None:
        return None
    try:
        whole = all(_has_size(folder / str(entry["path"]), entry["bytes"]) for entry in data["files"])
    except (KeyError, TypeError):
        return None
    step, request = _whole(data.get("step")), data.get("request")
    if not whole or step is None or step != _step_of(folder):
        return None
    return Complete(
        step,
        folder,
        _whole(data.get("generation")),
        _whole(data.get("world_size")),
        request if isinstance(request, str) else None,
        _seconds(data.get("save_s")),
    )


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _whole(value: object) -> int | None:
    """Return a number of steps, ranks or generations that 64 bits hold; anything else is unknown."""
    return value if type(value) is int and 0 <= value < 2**63 else None


def _seconds(value: object) -> float | None:
    known = type(value) in (int, float) and 0.0 <= value < math.inf  # type: ignore[operator]
    return float(value) if known else None  # type: ignore[arg-type]


def _has_size(path: Path, size: object) -> bool:
    try:
        return path.stat().st_size == size
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return False


def _step_of(folder: Path) -> int:
    digits = folder.name.removeprefix("step-")
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def _generation() -> int | None:
    text = os.environ.get("LIBRA_PLAN_GENERATION", "")
    return int(text) if text.isascii() and text.isdigit() else None
