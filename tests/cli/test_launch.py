"""`launch --yes` as its users see it: what stands in the way, and what happens while it runs."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from cli_run import PROGRAM, environment, program


@pytest.fixture
def run(call, folder, tmp_path, monkeypatch):
    """Plan two tasks on one node, and leave nothing but /bin on PATH."""
    assert call("solve", folder, "--gpus", 4, "--out", "run").code == 0
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "run"


def test_without_torchrun_nothing_is_started(run, tmp_path):
    """A virtual environment that is not activated is the commonest reason, and its way out one line."""
    (tmp_path / "bin").mkdir()
    ran = program("launch", run, "--yes", "--allow-unknown-gpus", PATH=str(tmp_path / "bin"))
    assert ran.code == 6
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("libra-plan: torchrun is not on PATH")
    assert "pip install torch" in ran.err
    assert not (tmp_path / "libra-plan-run" / "logs").exists()


def test_progress_is_told_while_roles_run(run, tmp_path):
    """A launch whose output is piped shows what started; Ctrl-C is no failure, and each end told once."""
    (tmp_path / "torchrun").write_text("#!/bin/sh\nexec sleep 30\n")
    (tmp_path / "torchrun").chmod(0o755)
    words = [*PROGRAM, "launch", str(run), "--yes", "--allow-unknown-gpus"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=environment(), **pipes) as launched:
        heard = [launched.stderr.readline() for _ in range(2)]  # comes while both still sleep
        assert launched.poll() is None
        launched.send_signal(signal.SIGINT)
        out, err = launched.communicate(timeout=60)
    assert [line.split(" (pid")[0] for line in heard] == [
        "started: a/reward-model",
        "started: b/reward-model",
    ]
    assert sorted(out.splitlines()) == [
        "a/reward-model: stopped (status -15)",
        "b/reward-model: stopped (status -15)",
    ]
    assert launched.returncode == 130
    assert err.splitlines() == [
        "libra-plan: interrupted by SIGINT; every role ended within its grace",
    ]


def test_a_node_that_is_not_in_the_manifest_is_named_with_those_that_are(call, run):
    """Who mistypes a node must not have to open the manifest."""
    ran = call("launch", run, "--node", "nod0")
    assert ran.code == 2
    assert "got --node nod0; allowed: node0; did you mean `--node node0`?" in ran.err


def test_a_task_that_is_not_in_the_manifest_is_an_error_of_input(call, run):
    """A slip of the keyboard is not a role that could not be started: exit code 2 tells them apart."""
    ran = call("launch", run, "--task", "aa")
    assert ran.code == 2
    assert "got --task aa; allowed: a, b; did you mean `--task a`?" in ran.err


def test_a_dry_run_counts_roles_as_the_manifest_names_them(call, run):
    """A word that no file of the user holds tells nobody what would start."""
    assert "--yes starts 2 roles on node0" in call("launch", run).err
    assert "--yes starts 1 role on node0" in call("launch", run, "--task", "a").err
