"""`monitor` and `summary` as their users run them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from urllib.request import urlopen

import pytest
from cli_run import PROGRAM, environment

SIMULATED = ("monitor", "--source", "simulated:2", "--interval", "0.05", "--for", "0.2")


def test_samples_come_as_a_table_and_as_a_line_of_json_each(call):
    """People read tables, programs lines; both on stdout, notes on stderr."""
    ran = call(*SIMULATED)
    assert (ran.code, ran.err) == (0, "5 looks\n")
    assert ran.out.count("NVIDIA H200") == 10
    ran = call(*SIMULATED, "--format", "json")
    samples = [json.loads(line) for line in ran.out.splitlines()]
    assert [len(each["gpus"]) for each in samples] == [2] * 5
    assert call(*SIMULATED, "--format", "none").out == ""


def test_what_is_recorded_can_be_played_and_summed_up(call, tmp_path):
    """A recording is only worth what can be read from it."""
    assert call(*SIMULATED, "--out", tmp_path / "rec", "--format", "none").code == 0
    played = call("monitor", "--source", tmp_path / "rec", "--format", "json")
    assert len(played.out.splitlines()) == 5
    (window,) = json.loads(call("summary", tmp_path / "rec", "--format", "json").out)
    assert window["samples"] == 5
    reading = window["gpus"][0]["readings"]["memory_used_mib"]
    assert reading["low"] <= reading["mean"] <= reading["peak"]
    table = call("summary", tmp_path / "rec", "--window", "0.1")
    assert table.code == 0
    assert table.out.count("p95") >= 2
    assert "memory_used_mib" in table.out
    tail = json.loads(call("summary", tmp_path / "rec", "--last", "0.06", "--format", "json").out)
    assert sum(each["samples"] for each in tail) == 2


def test_a_torn_line_is_said_and_does_not_stop_a_summary(call, tmp_path):
    """The last seconds of a crashed node are lost, the hours before are not."""
    call(*SIMULATED, "--out", tmp_path / "rec", "--format", "none")
    path = tmp_path / "rec" / "telemetry-000001.jsonl"
    path.write_bytes(path.read_bytes()[:-50])
    ran = call("summary", tmp_path / "rec", "--format", "json")
    assert json.loads(ran.out)[0]["samples"] == 4
    assert f"{path}:6: not a whole line" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("monitor", "--source", "nowhere"), "no such source"),
        (("monitor", "--source", "simulated", "--prometheus", "x"), "not an address"),
        (("monitor", "--source", "simulated", "--interval", "0"), "--interval"),
        (("summary", "nowhere"), "no recording there"),
        (("summary", "empty"), "no recording there"),
    ],
)
def test_what_is_wrong_is_told(call, tmp_path, words, said):
    """Each with exit code 2 and one line."""
    (tmp_path / "empty").mkdir()
    ran = call(*words)
    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_a_window_of_no_length_is_refused(call, tmp_path):
    """It would divide by nothing."""
    call(*SIMULATED, "--out", tmp_path / "rec", "--format", "none")
    ran = call("summary", tmp_path / "rec", "--window", "0")
    assert ran.code == 2
    assert "a window needs a length" in ran.err


def test_a_second_monitor_leaves_the_folder_alone(call, tmp_path):
    """Exit code 5: another run holds the state."""
    running = subprocess.Popen(
        [*PROGRAM, "monitor", "--source", "simulated:1", "--out", str(tmp_path / "rec"), "--format", "json"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert running.stdout.readline()
        assert call(*SIMULATED, "--out", tmp_path / "rec").code == 5
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_when_told(tmp_path, number):
    """Ctrl-C and a service manager's SIGTERM leave a whole recording and exit code 0."""
    running = subprocess.Popen(
        [
            *PROGRAM,
            "monitor",
            "--source=simulated:2",
            "--interval=600",
            f"--out={tmp_path}/rec",
            "--prometheus=0",
            "--format=json",
        ],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background inherits SIGINT ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - no thread
    )
    assert running.stdout.readline().startswith('{"kind":"sample"')
    served = running.stderr.readline().split()[-1]
    with urlopen(served, timeout=60) as page:
        assert b"libra_plan_gpu_utilization_ratio" in page.read()
    running.send_signal(number)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (0, "")
    assert err.startswith("1 look, recorded in ")
    assert (tmp_path / "rec" / "telemetry-000001.jsonl").read_text(encoding="utf-8").count("\n") == 2


def test_watching_does_not_load_what_planning_needs():
    """A monitor runs for weeks on every node: solvers and numpy would be memory for nothing."""
    code = (
        "import sys; from libra_plan.cli.app import run; "
        "run(['monitor', '--source', 'simulated:1', '--for', '0', '--format', 'json']); "
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment() | {"HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    loaded = set(done.stderr.split())
    assert "libra_plan.planner.telemetry.simulated" in loaded
    assert loaded.isdisjoint({"numpy", "scipy", "ortools", "pulp", "highspy", "yaml", "prometheus_client"})
