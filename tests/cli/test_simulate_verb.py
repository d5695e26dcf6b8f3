"""`simulate`: tables, JSON, traces and refusals."""

import json

import msgspec
import pytest
from sim_worlds import DECODE, TRAIN, make_task, make_world

from libra_plan.planner.simulate import sweep as sweep_module
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


def test_table_and_json_have_every_figure_with_its_interval(call, tmp_path):
    """A figure without its interval is a rumour: every row says ±, and scripts find mean, low and high."""
    words = ("simulate", world_file(tmp_path), "--policies", "equal,best-static,libra", "--seeds", "2")
    ran = call(*words)
    first = ran.out.split("\n\n")[0].splitlines()
    assert first[0].startswith("small: mean of 2 seeds")
    names = [line.split("  ")[0] for line in first[2:]]
    assert names == [
        "× fair share", "of the proven bound, %", "worst task, × fair share", "tokens /s", "samples /s",
        "idle, %", "bubbles, %",
        "moves /h", "lost to switching, GPU h", "decision p50, ms", "decision p99, ms", "rl, × fair share",
    ]  # fmt: skip
    assert all(line.count("±") == 3 for line in first[2:])
    assert "small: difference to best-static, seed by seed" in ran.out
    summaries = json.loads(call(*words, "--format", "json").out)["summaries"]
    found = {(each["policy"], each["figure"]): each for each in summaries}
    rate = found["equal", "task_rates.rl"]
    assert rate["value"]["low"] <= rate["value"]["mean"] <= rate["value"]["high"]
    assert rate["change"]["mean"] == 0.0
    assert found["best-static", "weighted"]["change"] is None


def test_pictures_are_written_where_asked(call, tmp_path):
    """Two pictures over time of the first seed, and the gains of all."""
    out = tmp_path / "pictures"
    words = ("--policies", "equal,best-static", "--seeds", "2", "--pictures", str(out))
    ran = call("simulate", world_file(tmp_path), *words)
    assert ran.code == 0
    assert f"wrote pictures to {out}" in ran.err
    names = ("allocation-small-0", "gain", "utilization-small-0")
    assert sorted(path.name for path in out.iterdir()) == [f"{name}.svg" for name in names]


def test_ctrl_c_prints_what_is_finished(call, tmp_path, monkeypatch):
    """Hours of runs must not be lost with the last one: the table has those that ended, the code says why."""
    real = sweep_module.run_case
    begun = []

    def third_is_stopped(case, progress=None):
        begun.append(case)
        if len(begun) == 3:
            raise KeyboardInterrupt
        return real(case, progress)

    monkeypatch.setattr(sweep_module, "run_case", third_is_stopped)
    ran = call("simulate", world_file(tmp_path), "--policies", "equal,best-static", "--seeds", "2")
    assert ran.code == 130
    assert "interrupted after 2 of 4 runs" in ran.err
    assert "small: one seed: no intervals" in ran.out
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


@pytest.mark.parametrize("option", ["--jsonl", "--chrome"])
def test_a_folder_that_cannot_be_is_refused_before_anything_runs(call, tmp_path, option):
    """A file in its place ended in a traceback after the runs."""
    (tmp_path / "file").write_text("")
    ran = call("simulate", world_file(tmp_path), "--policies", "equal", option, str(tmp_path / "file" / "x"))
    assert ran.code == 2
    assert "cannot write there" in ran.err
    assert ran.out == ""


def test_more_jobs_than_any_machine_has_are_refused(call, tmp_path):
    """What spreads runs would have refused it with a traceback."""
    assert call("simulate", world_file(tmp_path), "--jobs", "100000000").code == 2
