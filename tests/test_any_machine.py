"""What promises the same result everywhere gives it on a processor without AVX and FMA, too.

The last bits of NumPy's exp and log, of matrix products and of the C library's functions differ between
processors. Here the same commands run twice: as this machine is, and as a plain one. On a processor that has
nothing to switch off both runs are alike, and the tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_run import train_task, write_workload

ROOT = Path(__file__).parents[1]


def _plain() -> dict[str, str]:
    """Return the settings of `.ci/plain_processor`."""
    umath = pytest.importorskip("numpy._core._multiarray_umath")
    able = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    if not able:
        pytest.skip("this processor has nothing that could be switched off")
    tunables = "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F"
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(able),
        "OPENBLAS_CORETYPE": "Nehalem",
        "GLIBC_TUNABLES": tunables,
    }


@pytest.fixture
def command(tmp_path):
    """Run the command in a process of its own, with caches that no other run has written."""

    def run(name, *words, plain=False):
        cache = tmp_path / f"cache-{name}"
        environment = {**os.environ, **(_plain() if plain else {}), "LIBRA_PLAN_CACHE": str(cache)}
        ran = subprocess.run(
            [sys.executable, "-m", "libra_plan.cli", *map(str, words)],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run


def test_the_plain_processor_computes_other_bits():
    """If the settings switched nothing off, the other tests here would show nothing."""
    code = "import numpy as np; print(np.exp(np.linspace(0.1, 9.0, 4001)).tobytes().hex())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for more in ({}, _plain())
    }
    if "NPY_DISABLE_CPU_FEATURES" in os.environ:
        pytest.skip("everything runs as on a plain processor already")
    assert len(found) == 2


@pytest.mark.slow
def test_a_deterministic_plan_is_the_same(command):
    """Prices come from fits with exp and log; hanging on their last bits, a plan would differ elsewhere."""
    words = ("solve", ROOT / "profiles", "--gpus", 8, "--deterministic", "--format", "json")
    assert command("here", *words) == command("plain", *words, plain=True)


@pytest.mark.slow
def test_a_seed_of_the_simulator_is_the_same(command, tmp_path):
    """Every step, stage and move: draws that differ in the last bit would swap events."""
    words = ("simulate", "drift-search-48", "--policies", "best-static,ours", "--hours", 0.6)
    command("here", *words, "--jsonl", tmp_path / "here")
    command("plain", *words, "--jsonl", tmp_path / "plain", plain=True)
    traces = {
        place: {path.name: path.read_bytes() for path in (tmp_path / place).iterdir()}
        for place in ("here", "plain")
    }
    assert len(traces["here"]) == 2
    assert traces["here"] == traces["plain"]


@pytest.mark.slow
def test_a_record_of_the_loop_is_replayed(command, tmp_path):
    """Decisions that were recorded on a cluster are looked into on a laptop."""
    lab = write_workload(tmp_path / "lab", [train_task("rm"), train_task("late", weight=0.5)])
    run = tmp_path / "run"
    command("here", "solve", lab, "--gpus", 4, "--out", run)
    for gpus in (4, 3):
        command("here", "replan", lab, "--gpus", gpus, "--run", run)
    told = command("plain", "replay", "--run", run, plain=True)
    assert "2 looks derived again, 2 as recorded" in told
