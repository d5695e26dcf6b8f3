"""Solving while somebody waits: the terminal, the progress line, and Ctrl-C once or twice."""

from __future__ import annotations

import re

import pytest
from cli_run import on_terminal, train_task, write_workload

pytestmark = pytest.mark.slow

CTRL_C = "\x03"


@pytest.fixture
def hard(tmp_path):
    """Write a workload that takes max-min minutes: many tasks, many levels."""
    tasks = [
        train_task(
            f"t{at}", model=("0.5b", "1.5b", "7b")[at % 3], samples=300 + 97 * at, weight=1 + 0.37 * (at % 4)
        )
        for at in range(30)
    ]
    return write_workload(tmp_path / "hard", tasks)


def _solve(hard, presses, *more):
    words = ["solve", hard, "--gpus", 100, "--policy", "max-min", "--gap", 0, "--time-limit", 300, *more]
    return on_terminal(words, columns=120, keys={"solving": (CTRL_C,) * presses})


@pytest.mark.slow
def test_ctrl_c_gives_the_best_plan_so_far(hard):
    """Whoever has seen enough gets the plan that was found, verified and written as any other."""
    ran = _solve(hard, 1, "--out", "run")
    assert ran.code == 0, ran.out
    assert "interrupted: this is the best plan found so far" in ran.out
    assert "Traceback" not in ran.out
    assert "no plan exceeds" in ran.out
    assert "written: run/manifest.json" in ran.out


@pytest.mark.slow
def test_ctrl_c_twice_leaves_at_once(hard, tmp_path):
    """Whoever presses again wants the prompt back, and no half of a plan on disk."""
    ran = _solve(hard, 2, "--out", "run")
    assert ran.code == 130, ran.out
    assert ran.out.rstrip().endswith("libra-plan: interrupted")
    assert "Traceback" not in ran.out
    assert not list(tmp_path.glob("run/*"))


@pytest.mark.slow
def test_a_terminal_sees_objective_bound_and_gap(hard):
    """A search of minutes must show that it moves, on one line that vanishes before the result."""
    ran = _solve(hard, 1)
    line = next(part for part in ran.out.split("\r") if "bound" in part)
    assert re.match(r"solving \d+ s, (objective [\d.]+, )?bound [\d.]+", line)
    assert re.search(r"\r +\r", ran.out)


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_tables_fit_the_terminal(folder, columns):
    """At 80 columns nothing that a plan says may be cut off or wrapped by the terminal."""
    ran = on_terminal(["solve", folder, "--gpus", 4], columns=columns)
    assert ran.code == 0, ran.out
    plain = re.sub(r"\x1b\[[\d;]*m", "", ran.out)
    tables = plain[plain.index("task ") : plain.index("node0 ")]
    assert "…" not in tables
    assert all(len(line) <= columns for line in tables.splitlines())
    for word in ("reward-model", "node0:", "GPUs", "extrapolated", "bottleneck", "GiB"):
        assert word in plain


def test_no_color_means_none(folder):
    """NO_COLOR is honoured on terminals too."""
    assert "\x1b" not in on_terminal(["solve", folder, "--gpus", 2], NO_COLOR="1").out
    assert "\x1b[1m" in on_terminal(["solve", folder, "--gpus", 2]).out
