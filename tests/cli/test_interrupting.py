"""Ctrl-C during a long solve: a real signal to a real process, and what is left behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cli_run import PROGRAM, environment, train_task, write_workload

pytestmark = pytest.mark.slow

_PATIENCE_S = 120.0


def _tasks(number: int) -> list[dict]:
    models = ("0.5b", "1.5b", "7b")
    return [train_task(f"t{n}", model=models[n % 3], weight=1.0 + n % 7) for n in range(number)]


@pytest.fixture
def begun(tmp_path: Path, cache: Path):
    """Start a solve that goes on for minutes, and give it as soon as it weighs columns."""
    kept = cache / "columns"
    shutil.rmtree(kept, ignore_errors=True)
    work = write_workload(tmp_path / "large", _tasks(48))
    words = (
        "solve",
        work,
        "--gpus",
        500,
        "--gap",
        0,
        "--time-limit",
        600,
        "--out",
        "run",
        "--format",
        "json",
    )
    search = subprocess.Popen(
        [*PROGRAM, *map(str, words)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background inherits SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - no thread
    )
    try:
        ends = time.monotonic() + _PATIENCE_S
        while not any(kept.glob("*.json")):
            assert search.poll() is None, search.communicate()
            assert time.monotonic() < ends
            time.sleep(0.01)
        yield search
    finally:
        search.kill()
        search.communicate()


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


def test_two_presses_leave_with_nothing_written(begun):
    """Who presses again wants to leave: exit code 130, no traceback, nothing half-written."""
    begun.send_signal(signal.SIGINT)
    time.sleep(0.05)
    begun.send_signal(signal.SIGINT)
    out, err = begun.communicate(timeout=_PATIENCE_S)
    assert (begun.returncode, out) == (130, "")
    assert err.rstrip().endswith("libra-plan: interrupted")
    assert "Traceback" not in err
    assert not Path("run/manifest.json").exists()
