"""The exceptions of libra-plan.

    LibraError                 exit code 1 unless a branch says otherwise
    ├── InputError             2   a file, flag or value the user gave is wrong
    │   ├── ProfileError           a profile folder or its points
    │   ├── WorkloadError          workload.yaml
    │   ├── ClusterError           cluster.yaml or --gpus
    │   ├── ManifestError          a placement manifest
    │   └── StateError             the record of the re-plan loop
    ├── RefusedError           2   a model will not answer: outside what was measured
    ├── NoPlanError            3   no plan exists (the reason is proven)
    ├── TimeLimitError         4   no plan within the time limit
    ├── LockedError            5   another run holds the state
    └── LaunchError            6   a role could not be started or stopped as planned

7 is no error: `doctor` found something at or above its --fail-on.

Everything else that escapes is a defect of ours: traceback, exit code 1.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ClusterError",
    "InputError",
    "LaunchError",
    "LibraError",
    "LockedError",
    "ManifestError",
    "NoPlanError",
    "ProfileError",
    "RefusedError",
    "StateError",
    "TimeLimitError",
    "Where",
    "WorkloadError",
    "few",
    "writing",
]


@dataclass(frozen=True)
class Where:
    """The place in the user's files that a message points to: file, line (1-based) and dotted key."""

    file: str
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        key = "" if not self.key else f": {self.key}"
        return f"{self.file}{line}{key}"


class LibraError(Exception):
    """An expected outcome told in four parts: what is wrong, got, allowed, way out."""

    exit_code = 1

    def __init__(
        self,
        what: str,
        *,
        got: object = None,
        allowed: object = None,
        way_out: str | None = None,
        where: Where | None = None,
    ) -> None:
        self.what = what
        self.got = None if got is None else str(got)
        self.allowed = None if allowed is None else str(allowed)
        self.way_out = way_out
        self.where = where
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The line that a user sees: `[file:line: key: ]what; got …; allowed …; way out`."""
        parts = [self.what]
        if self.got is not None:
            parts.append(f"got {self.got}")
        if self.allowed is not None:
            parts.append(f"allowed: {self.allowed}")
        if self.way_out is not None:
            parts.append(self.way_out)
        text = "; ".join(parts)
        return text if self.where is None else f"{self.where}: {text}"


class InputError(LibraError):
    """Something the user gave is wrong."""

    exit_code = 2


class ProfileError(InputError):
    """A profile folder or one of its points is wrong."""


class WorkloadError(InputError):
    """The workload file is wrong."""


class ClusterError(InputError):
    """The cluster file or the inventory given on the command line is wrong."""


class ManifestError(InputError):
    """A placement manifest is wrong, stale or tampered with."""


class StateError(InputError):
    """The record of the re-plan loop is damaged, of another version, or not there."""


class RefusedError(LibraError):
    """A cost model will not answer, because the question lies outside what was measured."""

    exit_code = 2


class NoPlanError(LibraError):
    """No plan exists; the message says which limit proves it."""

    exit_code = 3


class TimeLimitError(LibraError):
    """No plan was found within the time limit."""

    exit_code = 4


class LockedError(LibraError):
    """Another run holds the state."""

    exit_code = 5


class LaunchError(LibraError):
    """A role could not be started or stopped as the manifest says."""

    exit_code = 6


def few(names: Sequence[str], most: int = 20, joiner: str = ", ") -> str:
    """Join at most so many names, and count those left out."""
    left = len(names) - most
    return joiner.join(names[:most]) + (f" and {left} more" if left > 0 else "")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write at `path` into an InputError that names it."""
    try:
        yield
    except OSError as problem:
        if problem.errno == errno.EPIPE:
            raise
        refused = path if problem.filename is None else problem.filename
        raise InputError(
            "cannot write there",
            got=problem.strerror or problem,
            way_out="name a folder that you may write to and that has room",
            where=Where(os.fsencode(refused).decode("utf-8", "replace")),
        ) from None
