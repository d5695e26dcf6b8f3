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
from fake_nvml import Hands
from telemetry_cases import gpu, recorder, sample

ONE_LOOK = ("monitor", "--source", "simulated:2", "--for", "0")


@pytest.fixture
def recording(tmp_path):
    """Record five samples, a second apart, of two GPUs."""
    made = recorder(tmp_path / "rec", Hands())
    for at_s in range(5):
        made.write(sample(float(at_s), gpu(0, 10.0 * at_s), gpu(1, None)))
    made.close()
    return tmp_path / "rec"


def test_samples_come_as_a_table_and_as_a_line_of_json_each(call):
    """People read tables, programs lines; both on stdout, notes on stderr."""
    ran = call(*ONE_LOOK)
    assert (ran.code, ran.err) == (0, "1 look\n")
    assert ran.out.count("NVIDIA H200") == 2
    (line,) = call(*ONE_LOOK, "--format", "json").out.splitlines()
    assert len(json.loads(line)["gpus"]) == 2
    assert call(*ONE_LOOK, "--format", "none").out == ""


def test_it_looks_once_an_interval(call):
    """How many looks a busy machine manages is not for a test to say; more than one it must be."""
    ran = call("monitor", "--source=simulated:1", "--interval=0.05", "--for=1", "--format=json")
    stamps = [json.loads(line)["monotonic_s"] for line in ran.out.splitlines()]
    assert len(stamps) > 1
    assert stamps == sorted(set(stamps))


def test_what_is_recorded_can_be_played(call, tmp_path):
    """A recording is only worth what can be read from it."""
    shown = call(*ONE_LOOK, "--out", tmp_path / "rec", "--format", "json").out
    played = call("monitor", "--source", tmp_path / "rec", "--format", "json").out
    assert json.loads(played) == json.loads(shown)


def test_a_recording_is_summed_up(call, recording):
    """Known values count, unknown ones do not, and windows and tails cut where they say."""
    (window,) = json.loads(call("summary", recording, "--format", "json").out)
    first, second = window["gpus"]
    assert window["samples"] == 5
    assert first["readings"]["utilization_percent"]["mean"] == 20.0
    assert "utilization_percent" not in second["readings"]
    table = call("summary", recording, "--window", "2")
    assert (table.code, table.out.count("p95")) == (0, 3)
    assert "memory_used_mib" in table.out
    tail = json.loads(call("summary", recording, "--last", "1.5", "--format", "json").out)
    assert [each["samples"] for each in tail] == [2]


def test_a_torn_line_is_said_and_does_not_stop_a_summary(call, recording):
    """The last seconds of a crashed node are lost, the hours before are not."""
    path = recording / "telemetry-000001.jsonl"
    path.write_bytes(path.read_bytes()[:-50])
    ran = call("summary", recording, "--format", "json")
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


def test_a_window_of_no_length_is_refused(call, recording):
    """It would divide by nothing."""
    ran = call("summary", recording, "--window", "0")
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
        assert call(*ONE_LOOK, "--out", tmp_path / "rec").code == 5
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
