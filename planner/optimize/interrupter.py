"""Follow a running solve from another thread, and end it early with the best plan so far."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Interrupter", "SolveProgress"]


@dataclass(frozen=True, slots=True)
class SolveProgress:
    """The present result of a search: the objective of the best choice, and its bound."""

    objective: float | None
    bound: float | None

    @property
    def gap(self) -> float | None:
        """Return the relative gap, None while one of the two is unknown."""
        if self.objective is None or self.bound is None:
            return None
        return max(0.0, self.bound - self.objective) / max(abs(self.objective), 1e-9)


class Interrupter:
    """The way to follow one solve from another thread, and to end it early.

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
    >>> interrupter = lp.Interrupter()
    >>> plan = lp.solve("profiles", gpus=8, interrupter=interrupter)
    >>> interrupter.stopped
    False
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop_solver: Callable[[], None] | None = None
        self.stopped = False
        self.last: SolveProgress | None = None

    def stop(self) -> None:
        """End the solver call that runs now, and all later ones at their start."""
        with self._lock:
            self.stopped = True
            if self._stop_solver is not None:
                self._stop_solver()

    @contextmanager
    def over(self, stop_solver: Callable[[], None]) -> Iterator[None]:
        """Make `stop()` reach a solver while it runs."""
        with self._lock:
            self._stop_solver = stop_solver
        try:
            yield
        finally:
            with self._lock:
                self._stop_solver = None

    def report(self, objective: float | None, bound: float | None) -> None:
        """Record objective and bound; None keeps the earlier value."""
        before = self.last or SolveProgress(None, None)
        self.last = SolveProgress(
            before.objective if objective is None else objective, before.bound if bound is None else bound
        )
