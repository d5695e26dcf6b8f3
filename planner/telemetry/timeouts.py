"""Calls that may never return, made under a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

__all__ = ["CallResult", "TimedCalls"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallResult(Generic[T]):
    """What a call returned, or the exception it ended with; `at_s` on the monotonic clock."""

    value: T | None
    error: Exception | None
    at_s: float


class TimedCalls(Generic[T]):
    """One thread that makes one call at a time.

    A call that does not return keeps its thread and nothing else: until it returns no further call is
    made, so that stuck calls never pile up, and the thread does not keep the program from ending.
    """

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._monotonic = monotonic
        self._calls: SimpleQueue[Callable[[], T] | None] = SimpleQueue()
        self._results: SimpleQueue[CallResult[T]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._in_flight = False

    @property
    def stuck(self) -> bool:
        """Whether the last call has not returned yet; a result that came too late is dropped."""
        try:
            self._results.get_nowait()
        except Empty:
            return self._in_flight
        self._in_flight = False
        return False

    def start(self, call: Callable[[], T]) -> bool:
        """Start a call unless the last one is still running, and return whether it was started."""
        if self.stuck:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._in_flight = True
        self._calls.put(call)
        return True

    def wait(self, until_s: float) -> CallResult[T] | None:
        """Return the result of the call just started, or None when it has none by `until_s`."""
        try:
            result = self._results.get(timeout=max(0.0, until_s - self._monotonic()))
        except Empty:
            return None
        self._in_flight = False
        return result

    def ask(self, call: Callable[[], T], limit_s: float) -> CallResult[T] | None:
        """Make a call; return None when it takes longer than `limit_s`, or an earlier one still runs."""
        return self.wait(self._monotonic() + limit_s) if self.start(call) else None

    def close(self) -> None:
        """Stop the thread, now or when its call returns."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            value, error = None, None
            try:
                value = call()
            except Exception as problem:  # the waiting caller uses it
                error = problem
            self._results.put(CallResult(value, error, self._monotonic()))
