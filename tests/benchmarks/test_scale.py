"""The benchmark of scale measures whole solves whose plans are verified."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import environment

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale.py"


def lines(*words: object) -> list[dict]:
    command = [sys.executable, str(SCALE), *map(str, words)]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=120)
    return list(map(json.loads, ran.stdout.splitlines()))


def test_a_running_plan_is_planned_again_unchanged_and_changed() -> None:
    """The figures of the page are of these three runs, and count only where the plans hold."""
    fresh, unchanged, changed = lines("--gpus", 64, "--tasks", 6, "--running")
    assert [each["violations"] for each in (fresh, unchanged, changed)] == [0, 0, 0]
    assert unchanged["moved"] == 0
    assert unchanged["objective"] == pytest.approx(fresh["objective"])
    assert changed["tasks"] == 7


@pytest.mark.parametrize("policy", ["max-min", "priority", "fair-share", "budget", "missed-deadlines"])
def test_policies_are_measured_too(policy: str) -> None:
    """A policy that nobody measures at scale is only hoped to be fast there."""
    (line,) = lines("--gpus", 32, "--tasks", 4, "--policy", policy)
    assert (line["policy"], line["violations"]) == (policy, 0)
