"""Progress on stderr: a bar where rich is installed and a person looks on, plain lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, TextIO

__all__ = ["BarProgress", "PlainProgress", "Progress", "make_progress"]


class Progress(Protocol):
    """Shows how far a measurement is."""

    def begin(self, label: str, total: int) -> None:
        """Start a kind of work with this many points."""

    def advance(self, text: str) -> None:
        """Show one finished point."""

    def say(self, text: str) -> None:
        """Show a line that is no point."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class PlainProgress:
    """One line a point, as logs want it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._label = ""
        self._total = 0
        self._number = 0

    def begin(self, label: str, total: int) -> None:
        """Start a kind of work with this many points."""
        self._label, self._total, self._number = label, total, 0

    def advance(self, text: str) -> None:
        """Print one finished point."""
        self._number += 1
        self.say(f"{self._label} [{self._number}/{self._total}] {text}")

    def say(self, text: str) -> None:
        """Print a line at once, also into a pipe."""
        self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Need nothing."""


class BarProgress:
    """A bar with the time left, through rich."""

    def __init__(self, stream: TextIO) -> None:
        console = import_module("rich.console").Console(file=stream)
        self._bar: Any = import_module("rich.progress").Progress(console=console)
        self._bar.start()
        self._task: Any = None

    def begin(self, label: str, total: int) -> None:
        """Start a bar."""
        self._task = self._bar.add_task(label, total=total)

    def advance(self, text: str) -> None:
        """Move the bar and print the point above it."""
        self._bar.console.print(text, highlight=False)
        self._bar.advance(self._task)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, highlight=False)

    def close(self) -> None:
        """End the live display."""
        self._bar.stop()


def make_progress(stream: TextIO | None = None, *, has: Callable[[str], object] = find_spec) -> Progress:
    """Return a bar on a terminal with rich, plain lines otherwise; `stream` defaults to stderr."""
    out = sys.stderr if stream is None else stream
    return BarProgress(out) if out.isatty() and has("rich") is not None else PlainProgress(out)
