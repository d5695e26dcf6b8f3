"""Solve while somebody waits: a progress line on a terminal, and Ctrl-C for the best plan so far."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import libra_plan as lp
from libra_plan.cli.errors import Interrupted

__all__ = ["interruptible"]

_POLL_S = 0.05
_FIRST_LINE_S = 0.5  # shorter solves need no progress line


def interruptible(solve: Callable[[lp.Interrupter], lp.Plan]) -> lp.Plan:
    """Solve in a thread of its own, so that the main thread stays free to hear Ctrl-C.

    The first Ctrl-C ends the search, and the best plan so far is the answer; the second leaves.
    """
    interrupter = lp.Interrupter()
    plans: list[lp.Plan] = []
    faults: list[BaseException] = []

    def work() -> None:
        try:
            plans.append(solve(interrupter))
        except BaseException as fault:  # handed to the main thread, which raises it
            faults.append(fault)

    thread = threading.Thread(target=work, daemon=True)
    line = _ProgressLine(time.monotonic())
    with _interrupts() as pressed:
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_S)
                if pressed:
                    interrupter.stop()  # again and again: a solver that was just starting has not heard it
                if len(pressed) > 1:
                    raise Interrupted
                line.show(interrupter, time.monotonic())
        finally:
            line.clear()
    if faults and pressed and isinstance(faults[0], lp.TimeLimitError):
        raise Interrupted
    if faults:
        raise faults[0]
    return plans[0]


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collect SIGINTs instead of raising; where they are ignored they stay ignored."""
    pressed: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield pressed
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _ProgressLine:
    """One line on stderr that is written over; nothing at all unless stderr is a terminal."""

    def __init__(self, begun: float) -> None:
        self._begun, self._width = begun, 0
        self._terminal = sys.stderr.isatty()

    def show(self, interrupter: lp.Interrupter, now: float) -> None:
        """Write what is known over what was written before."""
        if not self._terminal or now - self._begun < _FIRST_LINE_S:
            return
        text = f"solving {now - self._begun:.0f} s{_known(interrupter)}"
        text = text[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be written over
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()


def _known(interrupter: lp.Interrupter) -> str:
    last = interrupter.last
    if last is None:
        return ""
    known = (("objective", last.objective), ("bound", last.bound))
    parts = [f", {name} {value:.6g}" for name, value in known if value is not None]
    if last.gap is not None:
        parts.append(f", gap {last.gap:.2%}")
    return "".join(parts) + " (Ctrl-C takes the best so far)"
