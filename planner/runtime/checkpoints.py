"""Request a checkpoint from a task, and check whether one newer than the request is complete."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path

import msgspec

from libra_plan.planner.launchers.manifest import Lifecycle
from libra_plan.planner.runtime.journal import Ordered
from libra_plan.planner.runtime.worker import REQUEST, Complete, latest_complete
from libra_plan.profiles.durable import write_atomically

__all__ = ["answer_to", "marks_of", "newest", "withdraw", "write_request"]

_MOST_DIGITS = 19  # of a step that 64 bits hold


def newest(folder: Path, lifecycle: Lifecycle) -> Complete | None:
    """Find the newest complete checkpoint, by `complete.json` or by the framework's own sentinel.

    A sentinel such as verl's `latest_checkpointed_iteration.txt` holds the step that was saved last.
    """
    if isinstance(lifecycle.checkpoint_sentinel, msgspec.UnsetType):
        return latest_complete(folder)
    path = folder / lifecycle.checkpoint_sentinel
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not (text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS):
        return None
    return Complete(int(text), path.parent, None, None, None)


def write_request(order: Ordered) -> str | None:
    """Write a request where the task reads it, unless it is there already; return why that failed, if it did.

    A program that asks for no request may still save, and a disk that is full may have room later.
    """
    folder = Path(order.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        request = {"id": order.request, "generation": order.generation, "drain": True}
        write_atomically(folder / REQUEST, json.dumps(request).encode())
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def withdraw(order: Ordered) -> None:
    """Withdraw a request, so that the task continues."""
    path = Path(order.folder) / REQUEST
    if path.is_file():  # a folder that cannot be written to refuses even to remove what is not there
        path.unlink(missing_ok=True)


def answer_to(order: Ordered, lifecycle: Lifecycle, *, knows_requests: bool) -> Complete | None:
    """Find the checkpoint that answers a request; None while there is none.

    A program that asks for requests answers with the request's id. Any other is taken at the first
    checkpoint after the newest one at the time of the request.
    """
    found = newest(Path(order.folder), lifecycle)
    if found is None:
        return None
    if knows_requests or found.request == order.request:
        return found if found.request == order.request else None
    return found if order.after_step is None or found.step > order.after_step else None


def marks_of(progress: Path) -> dict[str, float]:
    """Read what a role reported: seconds since the host was started, by mark; the first of each counts."""
    marks: dict[str, float] = {}
    with suppress(OSError):
        for line in progress.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
                entry = json.loads(line)
                at_s = float(entry["boot_s"])
                if math.isfinite(at_s):
                    marks.setdefault(str(entry["mark"]), at_s)
    return marks
