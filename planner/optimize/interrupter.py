"""Look at a running solve from outside, and end it early with the best plan so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Look", "Watch"]


@dataclass(frozen=True, slots=True)
class Look:
    """What a search knows now: the policy's objective of the best choice, and what bounds it."""

    objective: float | None
    bound: float | None

    @property
    def gap(self) -> float | None:
        """Give the relative gap; None while one of the two is unknown."""
        if self.objective is None or self.bound is None:
            return None
        return max(0.0, self.bound - self.objective) / max(abs(self.objective), 1e-9)


class Watch:
    """One solve, seen from another thread.

    A stopped solve returns what it has, as at a time limit. Safe to use from any thread.

    Attributes
    ----------
    last
        The newest objective and bound; None before there is any.
    stopped
        Whether `stop()` has ended the search.

    Examples
    --------
    >>> import libra_plan as lp
    >>> watch = lp.Watch()
    >>> plan = lp.solve("profiles", gpus=8, watch=watch)
    >>> watch.stopped
    False
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop_solver: Callable[[], None] | None = None
        self.stopped = False
        self.last: Look | None = None

    def stop(self) -> None:
        """End the solver call that runs now, and all later ones at their start."""
        with self._lock:
            self.stopped = True
            if self._stop_solver is not None:
                self._stop_solver()

    @contextmanager
    def over(self, stop_solver: Callable[[], None]) -> Iterator[None]:
        """Let `stop()` reach a solver while it runs."""
        with self._lock:
            self._stop_solver = stop_solver
        try:
            yield
        finally:
            with self._lock:
                self._stop_solver = None

    def report(self, objective: float | None, bound: float | None) -> None:
        """Note what is known; a value of None keeps the one known before."""
        before = self.last or Look(None, None)
        self.last = Look(
            before.objective if objective is None else objective, before.bound if bound is None else bound
        )
