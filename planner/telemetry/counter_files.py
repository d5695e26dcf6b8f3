"""The files that counters write: one per process, whole lines only, never one of another process.

Only the standard library is imported: training loops load this.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

__all__ = ["CounterFile"]

SCHEMA_VERSION = 1
_MOST_NAME = 200  # file systems take 255 bytes
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class CounterFile:
    """Appends lines to a file that no other process has, and starts a new one when it is full.

    `identity` are the keys of every line that say whose work a process counts.

    The name has the process id and a free number, so that a reused id gets another number. A line goes
    out in one write; after one that went out in part, or not at all, the next begins on a line of its own.
    """

    def __init__(self, folder: str, identity: Mapping[str, object], most_bytes: int, keep: int) -> None:
        self._folder, self._identity, self._most, self._keep = folder, identity, most_bytes, max(keep, 1)
        self.error: str | None = None
        self._handle: int | None = None
        self._source: str | None = None
        self._written, self._torn, self._failures = 0, False, 0
        self._paths: list[str] = []

    def write(self, line: dict[str, object]) -> bool:
        """Append a line; False, with `error` set, when the system refuses."""
        try:
            if self._handle is None or self._written >= self._most:
                self._open()
            text = json.dumps(self._named(line), separators=(",", ":"), allow_nan=False)
            data = (b"\n" if self._torn else b"") + text.encode() + b"\n"
            assert self._handle is not None
            done = os.write(self._handle, data)
            self._written += done
            if done < len(data):
                self._torn = True
                raise OSError("the line went out in part: no space left")
        except (OSError, ValueError) as problem:
            self._failures += 1
            self.complain(f"they cannot be written and are kept for the next line: {problem}")
            return False
        self._torn, self.error = False, None
        return True

    def close(self) -> None:
        """Close the file; the next write opens another."""
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
        self._handle = None

    def forked(self) -> None:
        """Stop using the parent's file in a forked process."""
        self.close()
        self._source, self._paths, self._torn, self._failures, self.error = None, [], False, 0, None

    def _named(self, line: dict[str, object]) -> dict[str, object]:
        named = {"schema_version": SCHEMA_VERSION, "source": self._source, "clock": _clock_name()}
        errors = {"write_errors": self._failures} if self._failures else {}
        return {**named, **self._identity, **errors, **line}

    def _open(self) -> None:
        """Open the first free number; the file before it is closed, the oldest beyond `keep` removed."""
        own, process = self._identity, f"{os.uname().nodename}-{os.getpid()}"
        os.makedirs(self._folder, exist_ok=True)  # noqa: PTH103 - pathlib takes longer to load than the rest
        whose = f"{own['task']}-{own['role']}-dp{own['dp_rank']}-rank{own['rank']}"
        head = _UNSAFE.sub("_", f"work-{whose}-{process}")[-_MOST_NAME:]  # the lines have the names in full
        number, handle = len(self._paths), None
        while handle is None:
            path = os.path.join(self._folder, f"{head}-{number:04d}.jsonl")  # noqa: PTH118
            try:
                handle = os.open(
                    path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644
                )
            except FileExistsError:
                number += 1
        self.close()
        self._handle, self._written, self._torn = handle, 0, False
        self._source = self._source or f"{process}-{number:04d}"
        self._paths.append(path)
        for old in self._paths[: -self._keep]:
            with suppress(OSError):
                os.unlink(old)  # noqa: PTH108

    def complain(self, problem: str) -> None:
        """Set `error`, and log the first one since a line was written."""
        first, self.error = self.error is None, problem
        if first:
            import logging

            own = self._identity
            logging.getLogger(__name__).warning("counts of %s/%s: %s", own["task"], own["role"], problem)


@cache
def _clock_name() -> str:
    """Return the clock's name: processes of one boot of one machine share it, so their seconds compare."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
            boot = file.read(8)
    except OSError:
        boot = str(os.getpid())
    return f"{os.uname().nodename}-{boot}"
