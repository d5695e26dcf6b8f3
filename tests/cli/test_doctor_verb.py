"""`doctor` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from cli_run import train_task, write_workload
from doctor_cases import card, play, work
from plans import manifest_of, node, role, running

from libra_plan.models.topology import Cluster
from libra_plan.planner.launchers.store import write_manifest

SAMPLES = Path(__file__).parents[1] / "data" / "readers"
HEADER = (
    '{"kind":"header","schema_version":1,"node":"node0","source":"test","run":"r",'
    '"began_utc":"2023-11-14T22:13:20Z","interval_s":5.0}\n'
)


def record(folder, played=(), windows=()):
    """Write recordings as the monitor and counters do."""
    folder.mkdir()
    encode = msgspec.json.Encoder().encode
    looks = b"".join(encode(each.sample) + b"\n" for each in played)
    (folder / "telemetry-000001.jsonl").write_bytes(HEADER.encode() + looks)
    if windows:
        (folder / "work-t.jsonl").write_bytes(b"".join(encode(each) + b"\n" for each in windows))
    return folder


def resting(at_s):
    """Rest for a half of every 1000 s, on two GPUs in turn."""
    return [card(index, utilization_percent=0.0 if (at_s // 500 + index) % 2 else 95.0) for index in range(2)]


@pytest.fixture
def idle(tmp_path):
    """Record GPUs that rest, and a rollout that is slow."""
    counts = [*work("actor", 4000, waiting_s=5.0), *work("rollout", 4000, waiting_s=0.0)]
    return record(tmp_path / "telemetry", play(4000, resting), counts)


@pytest.fixture
def run(tmp_path):
    """Write the manifest that ran: a GPU for the rollout, one for the actor."""
    task = running("t", [role("rollout", [["node0:0"]])], [role("actor", [["node0:1"]])])
    where = Cluster("lab", (node("node0", 2, None),))
    write_manifest(tmp_path / "run", manifest_of(where, task))
    return tmp_path / "run"


def test_findings_are_told_with_evidence_cause_advice_and_gain(call, idle):
    """The table first, then each of them; exit code 7 for scripts."""
    ran = call("doctor", idle)
    assert ran.code == 7
    assert [line.split()[2] for line in ran.out.splitlines()[1:3]] == ["rollout-slow", "gpus-idle"]
    for word in ("when ", "seen ", "cause ", "do ", "gain ", "(a bound)", "2023-11-14T22:"):
        assert word in ran.out
    assert "whose the GPUs are (--manifest): long-tail" in ran.out


@pytest.mark.parametrize(("level", "code"), [("note", 7), ("warning", 7), ("critical", 0), ("never", 0)])
def test_the_level_that_fails_is_the_users(call, idle, level, code):
    """A pipeline in CI may live with warnings."""
    assert call("doctor", idle, "--fail-on", level).code == code


def test_a_clean_run_is_0_and_says_so(call, tmp_path):
    """Nothing found, and still what could not be looked for."""
    ran = call("doctor", record(tmp_path / "telemetry", play(1200)))
    assert ran.code == 0
    assert ran.out.startswith("nothing found\n")
    assert "not looked for" in ran.out


def test_json_has_figures_and_both_forms_of_time(call, idle):
    """Programs get numbers."""
    ran = call("doctor", idle, "--format", "json")
    assert ran.code == 7
    data = json.loads(ran.out)
    slow = data["findings"][0]
    assert data["worst"] == "warning"
    assert slow["figures"]["training_waiting_share"] == pytest.approx(0.5)
    assert slow["gain"]["kind"] == "bound"
    assert slow["began_utc"].startswith("2023-11-14T22:1")
    assert {each["code"] for each in data["unseen"]} == {"sync-traffic", "long-tail", "thrash", "backlog"}


def test_a_manifest_names_the_roles(call, idle, run):
    """Whose GPU it is decides what to do."""
    data = json.loads(call("doctor", idle, "--manifest", run, "--format", "json").out)
    assert [(each["code"], each["role"]) for each in data["findings"]][1:] == [
        ("gpus-idle", "rollout"),
        ("gpus-idle", "actor"),
    ]


def test_the_picture_is_sound_svg_with_every_lane_and_finding(call, idle, run, tmp_path):
    """Two roles, two GPUs, three findings."""
    drawn = tmp_path / "timeline.svg"
    ran = call("doctor", idle, "--manifest", run, "--picture", drawn)
    assert "timeline.svg" in ran.err
    root = ElementTree.fromstring(drawn.read_text(encoding="utf-8"))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"t/actor", "t/rollout", "node0:0", "node0:1"} <= set(texts)
    assert texts.count("gpus-idle") == 2
    assert "rollout-slow" in texts


def test_a_trainers_log_alone_can_be_read(call):
    """Waiting is in the log; its times begin at 0."""
    ran = call(
        "doctor",
        SAMPLES / "verl.jsonl",
        "--reader",
        "verl",
        "--task",
        "agent",
        "--format",
        "json",
        "--fail-on",
        "never",
    )
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert "hang" in [each["code"] for each in data["unseen"]]
    assert all(each["began_utc"] is None for each in data["findings"])


def test_torn_lines_are_left_out_and_said(call, idle):
    """A crash tears the last line of a part and of a counter's file."""
    for path in idle.iterdir():
        path.write_bytes(path.read_bytes()[:-20])
    ran = call("doctor", idle)
    assert ran.code == 7
    assert ran.err.count("left out: ") == 2


def test_a_folder_without_recordings_is_bad_input(call, tmp_path):
    """Silence would read as health."""
    (tmp_path / "empty").mkdir()
    ran = call("doctor", tmp_path / "empty")
    assert ran.code == 2
    assert "nothing was recorded there" in ran.err


@pytest.mark.parametrize(("most", "factor"), [(2, 1.0), (1, 2.0)])
def test_with_profiles_the_gain_is_estimated_by_solving_again(call, tmp_path, most, factor):
    """A task that was held to one GPU could have two; one that has both cannot gain."""
    task = train_task("t")
    task["roles"][0]["max_gpus"] = most
    folder = write_workload(tmp_path / "profiles", [task])
    assert call("solve", folder, "--gpus", 2, "--out", tmp_path / "run").code == 0
    write_workload(folder, [train_task("t")])
    telemetry = record(tmp_path / "telemetry", play(4000, resting))
    words = ("doctor", telemetry, "--manifest", tmp_path / "run", "--profiles", folder, "--format", "json")
    ran = call(*words)
    assert ran.code == 7, ran.err
    found = [each for each in json.loads(ran.out)["findings"] if each["task"] == "t"]
    gain = found[0]["gain"]
    assert (found[0]["code"], gain["kind"]) == ("gpus-idle", "estimate")
    assert gain["factor"] == pytest.approx(factor, rel=0.2)
    assert "(an estimate)" in gain["text"]
    assert "(a bound)" in gain["text"]
    assert "profile drift" in ran.err


def test_an_estimate_needs_the_plan_that_runs(call, idle):
    """There is nothing to compare a new plan with."""
    ran = call("doctor", idle, "--profiles", "profiles")
    assert ran.code == 2
    assert "--profiles without --manifest" in ran.err
