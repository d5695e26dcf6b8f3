"""`simulate --fit`: a world file from recordings, and what is said of it."""

import json
from pathlib import Path

import msgspec
import pytest
from sim_recordings import run_held, write_trace
from sim_worlds import make_task, make_world

from libra_plan.planner.simulate.world import read_world

EXAMPLES = Path(__file__).parents[2] / "examples"
H200 = EXAMPLES / "two_tasks/h200/measured/long"
PROFILES = ("--profile", "h200b-qwen2.5-1.5b-decode-gqa", "--profile", "h200c-qwen2.5-1.5b-train-accumulated")


def base_file(folder, **more):
    """Write a small base world."""
    path = folder / "base.yaml"
    path.write_bytes(msgspec.yaml.encode(msgspec.to_builtins(make_world(make_task(**more)))))
    return str(path)


def test_the_example_of_two_measured_gpus_becomes_a_world(call, tmp_path):
    """What examples/fit shows: measured steps, against profiles of the same model, off by few percent."""
    out = tmp_path / "mine.yaml"
    base, steps = str(EXAMPLES / "fit/base.yaml"), str(H200 / "colocated/steps.jsonl")
    ran = call("simulate", base, "--fit", steps, *PROFILES, "--out", str(out), "--format", "json")
    assert ran.code == 0
    fitted = {each["key"]: each for each in json.loads(ran.out)["fitted"]}
    assert fitted["long.costs.decode: × the base's"]["value"] == pytest.approx(1.0, abs=0.06)
    assert fitted["long.costs.train: × the base's"]["value"] == pytest.approx(1.0, abs=0.06)
    assert fitted["long.costs.train: × the base's"]["samples"] == 10
    world = read_world(out)
    assert world.id == "mine"
    assert "h200c-qwen2.5-1.5b-train-accumulated" in world.origin
    assert call("simulate", str(out), "--policies", "equal").code == 0


def test_what_is_assumed_is_said_on_stderr(call, tmp_path):
    """The result is the world; notes do not mix with it."""
    base = base_file(tmp_path)
    trace = write_trace(
        tmp_path / "t.jsonl", run_held(make_world(make_task(steps=10)), 1, rollout=[1], train=[1])
    )
    ran = call("simulate", base, "--fit", str(trace))
    assert ran.code == 0
    assert "assumed, as in small: rl.responses.sigma" in ran.err
    assert ran.out.startswith("schema_version: 1\nid: small-fitted\norigin: |")


def test_a_trainers_log_needs_the_gpus_it_ran_on(call, tmp_path):
    """Verl's log tells no placement: without --placed its stages support no costs, with it they do."""
    rows = [
        {"step": n, "data": {"timing_s/step": 30.0, "timing_s/gen": 12.0, "timing_s/update_actor": 9.0,
                             "perf/total_num_tokens": 64 * 1000, "prompt_length/mean": 200.0,
                             "response_length/mean": 800.0}}
        for n in range(12)
    ]  # fmt: skip
    log = tmp_path / "verl.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = base_file(tmp_path)
    without = call("simulate", base, "--fit", str(log))
    assert "--placed" in without.err
    assert "× the base's" not in without.out
    ran = call("simulate", base, "--fit", str(log), "--placed", "4", "--out", str(tmp_path / "w.yaml"))
    assert ran.code == 0
    assert "rl.costs.decode: × the base's" in ran.out
    assert read_world(tmp_path / "w.yaml").site.gpus == 4
    apart = call("simulate", base, "--fit", str(log), "--placed", "rollout=3x1,train=2x1", "--format", "json")
    assert json.loads(apart.out)["world"]["site"]["gpus"] == 5


@pytest.mark.parametrize("placed", ["rollout", "rollout=0x1", "x=1x1x1", "0"])
def test_a_placement_that_is_none_is_refused(call, tmp_path, placed):
    """The way out shows the form."""
    ran = call(
        "simulate", base_file(tmp_path), "--fit", str(H200 / "separate/steps.jsonl"), "--placed", placed
    )
    assert ran.code == 2
    assert "rollout=16x2" in ran.err


def test_options_of_a_fit_need_a_fit(call, tmp_path):
    """--out alone would be taken for the place of results."""
    ran = call("simulate", base_file(tmp_path), "--out", "x.yaml")
    assert ran.code == 2
    assert "--fit" in ran.err


def test_a_fit_begins_with_one_world(call, tmp_path):
    """Of two nobody knows which would hold where the recording tells nothing."""
    base = base_file(tmp_path)
    ran = call("simulate", base, base, "--fit", str(H200 / "separate/steps.jsonl"))
    assert ran.code == 2
    assert "one base world" in ran.err
