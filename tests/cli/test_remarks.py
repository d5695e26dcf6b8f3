"""What `solve` and `explain` say on stderr of a workload and of a plan that are not what one would expect."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_run import train_task, write_workload

EXAMPLES = Path(__file__).parents[2] / "examples"


def rollout_task(profile: str) -> dict:
    """Return a task that trains 0.5B and rolls out with another profile."""
    work = {
        "samples": 16,
        "prompt_tokens": {"kind": "fixed", "tokens": 512},
        "response_tokens": {"kind": "fixed", "tokens": 512},
    }
    rollout = {"id": "rollout", "kind": "rollout", "profiles": [profile], "max_concurrency": 8}
    actor = {**train_task()["roles"][0], "id": "actor", "kind": "actor_train"}
    return {"id": "rl", "work_per_step": work, "roles": [rollout, actor]}


def test_a_plan_from_a_manifest_says_where_it_was_found_and_how_to_start_anew(call, tmp_path):
    """Whoever names a folder twice may not know that what lies there is taken as running."""
    work = write_workload(tmp_path / "work", [train_task()])
    assert "planned from" not in call("solve", work, "--gpus", 2, "--out", "run").err
    again = call("solve", work, "--gpus", 2, "--out", "run").err
    assert "planned from run/manifest.json (generation 1), taken as running" in again
    assert "name another folder as out (--out) to start anew" in again


@pytest.mark.parametrize("verb", ["solve", "explain"])
def test_a_task_that_can_never_run_is_warned_of(call, tmp_path, verb):
    """The plan of the others is no error, and its exit code 0 says nothing of this one."""
    never = train_task("never")
    never["roles"][0]["layouts"] = [{"tp": 2}]
    ran = call(verb, write_workload(tmp_path / "work", [train_task("rm"), never]), "--gpus", 2)
    assert ran.code == 0, ran.err
    (line,) = [line for line in ran.err.splitlines() if line.startswith("warning: it waits")]
    assert "never: role reward-model cannot be priced" in line


def test_fair_share_without_quotas_is_optimal_and_says_what_it_does(call, tmp_path):
    """Its first pass has an objective of 0, against which any rounding looked like a gap."""
    work = write_workload(tmp_path / "work", [train_task("a"), train_task("b")])
    ran = call("solve", work, "--gpus", 2, "--policy", "fair-share")
    assert "optimal: " in ran.out
    assert "no `quotas`: --policy fair-share lets every task borrow" in ran.err
    assert "quotas" not in call("solve", work, "--gpus", 2).err


@pytest.mark.parametrize("first", ["light", "heavy"])
def test_of_plans_worth_the_same_the_heavier_task_runs(call, tmp_path, first):
    """On one GPU a share is fair in proportion to its weight, and so both are worth as much."""
    tasks = [train_task("light", weight=1.0), train_task("heavy", weight=2.0)]
    ran = call(
        "solve", write_workload(tmp_path / "work", tasks if first == "light" else tasks[::-1]), "--gpus", 1
    )
    assert "A = heavy" in ran.out
    (line,) = [line for line in ran.out.splitlines() if line.startswith("waits [worth] light")]
    assert "of equals the heavier tasks run" in line
    assert "raise its weight" not in line


def test_the_advice_of_a_task_that_is_not_worth_its_gpus_is_true(call, tmp_path):
    """It is told of tiers; taking the advice must bring it in, as raising its weight would not."""
    light, heavy = train_task("light", weight=1.0), train_task("heavy", weight=2.0)
    out = call("solve", write_workload(tmp_path / "one", [light, heavy]), "--gpus", 1).out
    assert "give it a smaller `tier` than the others under --policy priority" in out
    tiers = write_workload(tmp_path / "two", [light, {**heavy, "tier": 1}])
    assert "A = light" in call("solve", tiers, "--gpus", 1, "--policy", "priority").out


def test_ranks_beyond_those_measured_are_told(call, tmp_path):
    """Four data-parallel ranks rest on one or two that were measured."""
    task = train_task()
    task["roles"][0]["min_gpus"] = 4
    ran = call("solve", write_workload(tmp_path / "work", [task]), "--gpus", 4)
    assert "rm/reward-model is beyond the ranks measured: 4 data-parallel ranks, 1 rank measured" in ran.err
    assert "2 doublings more" in ran.err


def test_an_actor_and_a_rollout_of_different_models_are_warned_of(call, tmp_path):
    """What is trained is normally what rolls out: a slip of the pen names another profile."""
    mixed = write_workload(tmp_path / "mixed", [rollout_task("h200-qwen2.5-1.5b-decode")])
    said = "task rl: actor, rollout and reference of one task are normally one model, and these are not"
    assert f"warning: {said}" in call("solve", mixed, "--gpus", 2).err
    assert f"warning: {said}" in call("validate", mixed).out
    same = write_workload(tmp_path / "same", [rollout_task("h200-qwen2.5-0.5b-decode")])
    assert "normally one model" not in call("validate", same).out


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="run against an installed package")
def test_explain_promises_no_default_in_a_folder_it_does_not_take(call):
    """`explain` has no --out."""
    assert "--out" not in call("explain", "--help").out


def test_a_micro_batch_beyond_what_was_measured_is_named_with_the_range(call, tmp_path):
    """The model's batch and length say nothing to who wrote `micro_batch_tokens`."""
    task = train_task(samples=4096)
    task["roles"][0]["micro_batch_tokens"] = 1_000_000
    work = write_workload(tmp_path / "work", [task])
    assert (
        "warning: rm/reward-model: micro_batch_tokens 1000000 is beyond what was"
        in call("validate", work).out
    )
    err = call("solve", work, "--gpus", 1).err
    assert "micro_batch_tokens 1000000: " in err
    assert "micro_batch_tokens from 1024 to 32768, the range measured" in err


def test_a_layout_nobody_measured_is_told_by_validate(call, tmp_path):
    """It is sound, and `solve` refuses it."""
    task = train_task()
    task["roles"][0]["layouts"] = [{"tp": 1}, {"tp": 2}]
    (line,) = [
        line
        for line in call("validate", write_workload(tmp_path / "work", [task])).out.splitlines()
        if "not measured" in line
    ]
    assert "rm/reward-model: layouts: {tp: 2, pp: 1, cp: 1, ep: 1}" in line


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="run against an installed package")
@pytest.mark.parametrize("verb", ["solve", "explain"])
def test_too_few_tool_workers_are_warned_of(call, tmp_path, verb):
    """The plan lets no turn wait for a worker, so 8 of them promised the step that 256 would give."""
    text = (EXAMPLES / "async" / "workload.yaml").read_text()
    for workers, short in ((128, False), (8, True)):
        folder = tmp_path / str(workers)
        folder.mkdir()
        (folder / "workload.yaml").write_text(text.replace("workers: 128", f"workers: {workers}"))
        err = call(verb, folder, "--gpus", 16).err
        assert ("warning: swe-7b/env has 8 workers, and tool calls keep 16 busy" in err) is short, err
        assert ("steps take at least 384 s, not 192 s; state `workers` of" in err) is short, err
