"""Following a search from outside and ending it."""

from __future__ import annotations

from libra_plan.planner.optimize.interrupter import Interrupter, SolveProgress


def test_the_gap_is_relative_and_unknown_until_both_are_known() -> None:
    """A bound below the objective is one of rounding: a gap of 0."""
    assert SolveProgress(None, 4.0).gap is None
    assert SolveProgress(4.0, None).gap is None
    assert SolveProgress(4.0, 5.0).gap == 0.25
    assert SolveProgress(4.0, 3.9).gap == 0.0


def test_what_is_not_told_stays_as_it_was() -> None:
    """Objective and bound come from different places."""
    interrupter = Interrupter()
    assert interrupter.last is None
    interrupter.report(1.0, None)
    interrupter.report(None, 3.0)
    assert interrupter.last == SolveProgress(1.0, 3.0)
    interrupter.report(2.0, None)
    assert interrupter.last == SolveProgress(2.0, 3.0)


def test_stop_reaches_the_solver_that_runs_and_no_other() -> None:
    """After a call has ended its solver must be left alone."""
    interrupter, calls = Interrupter(), []
    with interrupter.over(lambda: calls.append("first")):
        pass
    with interrupter.over(lambda: calls.append("second")):
        interrupter.stop()
    assert calls == ["second"]
    assert interrupter.stopped
    interrupter.stop()
    assert calls == ["second"]
