"""CBC as a child process, through PuLP: watched, since it has been seen to hang (coin-or/pulp 737).

What it found is read from its own log: PuLP 3 calls a time limit "Optimal", and PuLP 4 reports
"Infeasible" when CBC ran out of time before it had looked.
"""

from __future__ import annotations

import math
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pulp

from libra_plan.planner.optimize.milp import Answer, Question, choice_of

__all__ = ["ask_cbc"]

_POLL_S = 0.02
_GRACE_S = 5.0  # to write its answer after the limit; then it is taken to hang
_EARLY = ("stopped on", "maximum time", "partial search", "user event", "exiting on")


def ask_cbc(question: Question, program: str) -> Answer:
    """Solve with CBC on one thread; several are what has hung."""
    with TemporaryDirectory(prefix="libra-plan-cbc-") as folder:
        log = Path(folder) / "log"
        solver = pulp.COIN_CMD(
            path=program,
            msg=False,
            gapRel=question.gap,
            gapAbs=1e-9,
            timeLimit=question.limit_s,
            logPath=str(log),
            options=[f"randomCbcSeed {question.seed}"],
        )
        solver.tmpDir = folder  # its command line then names the folder, which nothing else does
        failed = _watched(question, solver, folder)
        said = log.read_text(errors="replace") if log.exists() else ""
    if failed:
        return Answer(None, -math.inf, complete=False)
    return _answer(question, said)


def _watched(question: Question, solver: object, folder: str) -> bool:
    """Run CBC in a thread; end the child when somebody asks, and kill it when it does not end."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            question.model.solve(solver)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    waited, asked = 0.0, False
    while thread.is_alive():
        thread.join(_POLL_S)
        waited += _POLL_S
        if not asked and question.watch is not None and question.watch.stopped:
            asked, waited = True, question.limit_s
            _signal(folder, signal.SIGINT)  # it then writes the best it has
        if waited > question.limit_s + _GRACE_S:
            _signal(folder, signal.SIGKILL)
    unexpected = [failure for failure in failures if not isinstance(failure, pulp.PulpSolverError)]
    if unexpected:
        raise unexpected[0]
    return bool(failures)  # it crashed or was killed: it has nothing to say


def _signal(folder: str, number: int) -> None:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(word.startswith(folder) for word in child.cmdline()):
                child.send_signal(number)


def _answer(question: Question, said: str) -> Answer:
    """Read outcome and bound from the log, and the choice from the variables."""
    low = said.lower()
    early = any(word in low for word in _EARLY)
    result = low.split("result -")[-1]  # all of it where CBC had nothing to search
    bound = _number(r"lower bound:\s*", result)
    objective = _number(r"objective value:?\s+", result)
    if "infeasible" in result.split("objective value")[0]:
        return Answer(None, -math.inf, complete=not early and not _out_of_time(low, question.limit_s))
    if objective is None:
        return Answer(None, -math.inf if bound is None else bound, complete=False)
    if bound is None:  # without one of its own CBC has closed the gap that was allowed
        bound = -math.inf if early else objective - question.gap * abs(objective)
    return Answer(choice_of(question.chosen), bound, complete=not early)


def _number(before: str, text: str) -> float | None:
    found = re.findall(before + r"([-+]?\d[\d.]*(?:e[-+]?\d+)?)", text)
    return float(found[-1]) if found else None


def _out_of_time(text: str, limit_s: float) -> bool:
    used = _number(r"wallclock seconds\):\s*", text)
    return used is None or used >= 0.9 * limit_s
