"""Calls that may never come back, made under a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

__all__ = ["Answer", "Guard"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a call gave, or the exception it ended with; `at_s` on the monotonic clock."""

    value: T | None
    error: Exception | None
    at_s: float


class Guard(Generic[T]):
    """One thread that makes one call at a time.

    A call that does not come back keeps its thread and nothing else: until it returns no further
    call is made, so stuck calls never pile up, and the thread does not keep the program from ending.
    """

    def __init__(self, name: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._monotonic = monotonic
        self._calls: SimpleQueue[Callable[[], T] | None] = SimpleQueue()
        self._answers: SimpleQueue[Answer[T]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._in_flight = False

    @property
    def stuck(self) -> bool:
        """Tell whether the last call has not come back yet."""
        self._forget_late()
        return self._in_flight

    def start(self, call: Callable[[], T]) -> bool:
        """Start a call, unless the last one is still out; say whether it was started."""
        if self.stuck:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._in_flight = True
        self._calls.put(call)
        return True

    def wait(self, until_s: float) -> Answer[T] | None:
        """Give the answer of the call just started, or None when it is not there by `until_s`."""
        try:
            answer = self._answers.get(timeout=max(0.0, until_s - self._monotonic()))
        except Empty:
            return None
        self._in_flight = False
        return answer

    def ask(self, call: Callable[[], T], limit_s: float) -> Answer[T] | None:
        """Make a call; give None when it takes longer than `limit_s`, or an earlier one still does."""
        return self.wait(self._monotonic() + limit_s) if self.start(call) else None

    def close(self) -> None:
        """Let the thread end, now or when its call comes back."""
        self._calls.put(None)

    def _forget_late(self) -> None:
        """Drop the answer of a call nobody waited for to the end: it says what was, not what is."""
        try:
            self._answers.get_nowait()
        except Empty:
            return
        self._in_flight = False

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            value, error = None, None
            try:
                value = call()
            except Exception as problem:  # it belongs to whoever waits
                error = problem
            self._answers.put(Answer(value, error, self._monotonic()))
