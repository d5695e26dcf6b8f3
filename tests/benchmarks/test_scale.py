"""The benchmark of scale: Ctrl-C ends its search with what there is, and policies are measured, verified."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import environment

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


def _words(*more: object) -> list[str]:
    return [sys.executable, str(SCALE), *map(str, more)]


@pytest.mark.slow
def test_ctrl_c_prints_the_best_so_far_with_its_bound() -> None:
    """Nobody who stops a search of minutes wants to go away without its plan."""
    search = subprocess.Popen(
        _words("--gpus", 4096, "--tasks", 200, "--gap", 0, "--time-limit", 600, "--running"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background inherits SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - no thread
    )
    assert search.stderr is not None
    assert "Ctrl-C" in search.stderr.readline()
    search.send_signal(signal.SIGINT)
    try:
        out, err = search.communicate(timeout=120)
    finally:
        search.kill()
    assert (search.returncode, err) == (130, "")
    (line,) = map(json.loads, out.splitlines())
    assert line["interrupted"]
    assert line["bound"] >= line["placed_objective"] > 0.3 * line["bound"]


def test_a_policy_is_solved_cold_and_warm_and_verified() -> None:
    """A figure counts only where the plan it is of holds."""
    words = _words("--policy", "all", "--gpus", 16, "--tasks", 3, "--warm", "--gap", 1e-4)
    ran = subprocess.run(words, env=environment(), capture_output=True, text=True, check=True, timeout=120)
    lines = list(map(json.loads, ran.stdout.splitlines()))
    assert [line["run"] for line in lines] == ["cold", "warm"] * 8
    for cold, warm in zip(lines[::2], lines[1::2], strict=True):
        assert cold["violations"] == warm["violations"] == 0
        assert (cold["columns_made"], warm["columns_made"]) == (3, 0)
        assert abs(cold["objective"] - warm["objective"]) <= 1e-4 * cold["bound"]
