"""`simulate`: tables, JSON, traces and refusals."""

import json

import msgspec
from sim_worlds import DECODE, TRAIN, make_task, make_world

from libra_plan.planner.simulate.world import Costs


def world_file(folder):
    """Write a small world."""
    world = make_world(make_task(costs=Costs(decode=(DECODE,), train=TRAIN)), gpus=4, hours=0.1)
    path = folder / "small.yaml"
    path.write_bytes(msgspec.yaml.encode(msgspec.to_builtins(world)))
    return str(path)


def test_json_has_every_run_and_the_paired_ratios(call, tmp_path):
    """Scripts read the runs; people the ratio."""
    ran = call("simulate", world_file(tmp_path), "--policies", "equal,best-static", "--seeds", "2",
                    "--format", "json")  # fmt: skip
    assert ran.code == 0
    data = json.loads(ran.out)
    assert [(run["policy"], run["seed"]) for run in data["runs"]] == [
        ("equal", 0), ("best-static", 0), ("equal", 1), ("best-static", 1)]  # fmt: skip
    assert data["ratios"][0]["policy"] == "equal"
    assert data["ratios"][0]["low"] <= data["ratios"][0]["mean"] <= data["ratios"][0]["high"]


def test_the_table_names_worlds_and_policies(call, tmp_path):
    """The first look is a table."""
    ran = call("simulate", world_file(tmp_path), "--policies", "equal,best-static")
    assert ran.code == 0
    assert "× fair share" in ran.out
    assert "best-static" in ran.out


def test_traces_are_written_where_asked(call, tmp_path):
    """One file per run, in both forms."""
    out = tmp_path / "traces"
    ran = call("simulate", world_file(tmp_path), "--policies", "equal", "--jsonl", str(out), "--chrome",
                    str(out))  # fmt: skip
    assert ran.code == 0
    assert {path.name for path in out.iterdir()} == {"small-equal-0.jsonl", "small-equal-0.json"}


def test_wrong_names_are_refused_before_anything_runs(call, tmp_path):
    """Exit code 2 and the names there are."""
    no_world = call("simulate", "nowhere")
    assert no_world.code == 2
    assert "identical-64" in no_world.err
    no_policy = call("simulate", world_file(tmp_path), "--policies", "best")
    assert no_policy.code == 2
    assert "best-static" in no_policy.err
