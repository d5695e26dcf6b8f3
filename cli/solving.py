"""Solve while somebody waits: a progress line on a terminal, and Ctrl-C for the best plan so far."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from libra_plan.cli import render
from libra_plan.cli.errors import Interrupted
from libra_plan.errors import NoPlanError

if TYPE_CHECKING:
    from libra_plan.planner.optimize.base import SolveParams, SolveResult
    from libra_plan.planner.optimize.interrupter import Look, Watch
    from libra_plan.planner.plan import Plan
    from libra_plan.planner.problem import Problem

__all__ = ["verified_plan"]

_POLL_S = 0.05
_FIRST_LINE_S = 0.5  # shorter solves need no progress line


def verified_plan(problem: Problem, params: SolveParams) -> Plan:
    """Solve, and let the verifier look at the plan before anyone sees it.

    The first Ctrl-C ends the search, and the best plan so far is the answer; the second leaves.
    """
    from libra_plan.planner.optimize.base import TerminationReason
    from libra_plan.planner.optimize.interrupter import Watch
    from libra_plan.planner.verify import violations_of

    watch = Watch()
    result = _watched(problem, replace(params, watch=watch), watch)
    if watch.stopped:
        if result.plan is None:
            raise Interrupted
        render.note("interrupted: this is the best plan found so far")
    if result.plan is None and result.termination.reason is TerminationReason.INFEASIBLE:
        raise _no_plan(problem, result, params.time_limit_s)
    plan = result.require_plan()
    violations = violations_of(problem, plan)
    if violations:
        listed = "; ".join(str(each) for each in violations[:5])
        raise RuntimeError(f"the plan breaks its own problem, a defect of ours: {listed}")
    return plan


def _no_plan(problem: Problem, result: SolveResult, limit_s: float) -> NoPlanError:
    """Say why there is no plan, and what must give way so that there is one: within the time limit again."""
    from libra_plan.planner.explain import explain_no_plan

    ways = "; ".join(each.text for each in explain_no_plan(problem, limit_s))
    return NoPlanError("no plan exists", got=result.termination.detail, way_out=ways or None)


@dataclass
class _Work:
    """The solve, in a thread of its own: the main thread must stay free to hear Ctrl-C."""

    task: Callable[[], SolveResult]
    results: list[SolveResult] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        try:
            self.results.append(self.task())
        except BaseException as fault:  # handed to the main thread, which raises it
            self.faults.append(fault)


def _watched(problem: Problem, params: SolveParams, watch: Watch) -> SolveResult:
    from libra_plan.planner.optimize.solve import solve_problem

    work = _Work(lambda: solve_problem(problem, params))
    thread = threading.Thread(target=work.run, daemon=True)
    line = _ProgressLine(time.monotonic())
    with _interrupts() as pressed:
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_S)
                if pressed:
                    watch.stop()  # again and again: a solver that was just starting has not heard it
                if len(pressed) > 1:
                    raise Interrupted
                line.show(watch.last, time.monotonic())
        finally:
            line.clear()
    if work.faults:
        raise work.faults[0]
    return work.results[0]


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

    def show(self, look: Look | None, now: float) -> None:
        """Write what is known over what was written before."""
        if not self._terminal or now - self._begun < _FIRST_LINE_S:
            return
        text = f"solving {now - self._begun:.0f} s" + ("" if look is None else _known(look))
        text = text[: shutil.get_terminal_size().columns - 1]  # a line that wraps cannot be written over
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def clear(self) -> None:
        """Leave an empty line behind."""
        if self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()


def _known(look: Look) -> str:
    parts = [
        f"{name} {value:.6g}"
        for name, value in (("objective", look.objective), ("bound", look.bound))
        if value is not None
    ]
    if look.gap is not None:
        parts.append(f"gap {look.gap:.2%}")
    return "".join(f", {part}" for part in parts) + " (Ctrl-C takes the best so far)"
