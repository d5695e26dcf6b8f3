"""Ctrl-C during a long solve: a real signal to a real process, and what is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_run import environment, train_task, write_workload

pytestmark = pytest.mark.slow

_PATIENCE_S = 120.0


# The search says when it begins, and ends only when it is stopped, or never: no problem is hard for long.
_WAITS = """
import sys, time
from libra_plan.planner.optimize.policies import throughput

search_for_best, never = throughput.best_sum, sys.argv.pop() == "never"

def best_sum(search, hint):
    print("searching", file=sys.stderr, flush=True)
    while not search.params.stopped or never:
        time.sleep(0.01)
    return search_for_best(search, hint)

throughput.best_sum = best_sum
from libra_plan.cli.app import main
sys.argv[0] = "libra-plan"
main()
"""


def _tasks(number: int) -> list[dict]:
    models = ("0.5b", "1.5b", "7b")
    return [train_task(f"t{n}", model=models[n % 3], weight=1.0 + n % 7) for n in range(number)]


@pytest.fixture
def begun(tmp_path: Path, request: pytest.FixtureRequest):
    """Start a solve whose search does not end by itself, and give it as soon as that has begun."""
    work = write_workload(tmp_path / "some", _tasks(6))
    words = ("solve", work, "--gpus", 16, "--time-limit", 600, "--out", "run", "--format", "json")
    search = subprocess.Popen(
        [sys.executable, "-c", _WAITS, *map(str, words), request.param],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background inherits SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - no thread
    )
    try:
        assert search.stderr is not None
        while search.stderr.readline() != "searching\n":
            assert search.poll() is None, search.communicate()
        yield search
    finally:
        search.kill()
        search.communicate()


@pytest.mark.parametrize("begun", ["when stopped"], indirect=True)
def test_the_best_so_far_is_printed_and_written_whole(begun, call):
    """One press: exit code 0, a manifest with its bound, verified, and no other file beside it."""
    begun.send_signal(signal.SIGINT)
    out, err = begun.communicate(timeout=_PATIENCE_S)
    assert begun.returncode == 0, err
    assert "interrupted: this is the best plan found so far" in err
    proof = json.loads(out)["spec"]["certificate"]
    assert proof["bound"] >= proof["objective"] > 0
    assert json.loads(Path("run/manifest.json").read_text()) == json.loads(out)
    assert call("validate", "run/manifest.json").code == 0
    assert {path.name for path in Path("run").iterdir()} <= {"manifest.json", ".lock"}


@pytest.mark.parametrize("begun", ["never"], indirect=True)
def test_two_presses_leave_with_nothing_written(begun):
    """Who presses again wants to leave: exit code 130, no traceback, nothing half-written."""
    begun.send_signal(signal.SIGINT)
    time.sleep(0.3)  # signals that come too close are one
    begun.send_signal(signal.SIGINT)
    out, err = begun.communicate(timeout=_PATIENCE_S)
    assert (begun.returncode, out) == (130, "")
    assert err.rstrip().endswith("libra-plan: interrupted")
    assert "Traceback" not in err
    assert not Path("run/manifest.json").exists()
