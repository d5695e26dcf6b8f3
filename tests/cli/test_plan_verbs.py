"""`solve` and `explain`: the same input gives the same plan, and nothing is written for nothing."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from pathlib import Path

import pytest
import yaml
from cli_run import program, train_task, write_workload

from libra_plan.planner.launchers import store
from libra_plan.planner.launchers.store import CURRENT


def test_the_same_plan_bit_for_bit(folder):
    """Plans are compared by digest, so hashing order and caches must not show in them."""
    words = ("solve", folder, "--gpus", 6, "--deterministic", "--format", "json")
    first, second = (program(*words, PYTHONHASHSEED=seed).out for seed in ("1", "2"))
    assert first
    assert first == second


@pytest.mark.slow
def test_the_shipped_plan_does_not_change_between_runs(call):
    """A user who solves twice must not see tasks wander, with or without --deterministic."""
    words = ("solve", "profiles", "--gpus", 8, "--format", "json")
    first, second = (call(*words).out for _ in range(2))
    assert json.loads(first)["spec"]["tasks"]
    assert first == second


def test_solving_again_writes_nothing(call, folder):
    """A generation costs every launcher a look: one that says nothing new must not be written."""
    first = call("solve", folder, "--gpus", 4, "--out", "run")
    assert "generation 1" in first.err
    before = Path("run", CURRENT).read_bytes()
    again = call("solve", folder, "--gpus", 4, "--out", "run", "--format", "json")
    assert again.code == 0
    assert "unchanged: run/manifest.json (generation 1)" in again.err
    assert Path("run", CURRENT).read_bytes() == before
    assert json.loads(again.out) == json.loads(before)
    assert [path.name for path in Path("run").glob("manifest*")] == [CURRENT]


def test_a_changed_workload_moves_only_what_must(call, tmp_path):
    """A task that joins must not move one that can stay: its restart would be lost work."""
    a, b = train_task("a"), train_task("b")
    a["max_gpus"] = 2
    work = write_workload(tmp_path / "grow", [a])
    assert call("solve", work, "--gpus", 4, "--out", "run").code == 0
    write_workload(work, [a, b])
    ran = call("solve", work, "--gpus", 4, "--out", "run", "--format", "json")
    assert "generation 2" in ran.err
    steps = {step["task"]: step["action"] for step in json.loads(ran.out)["spec"]["transitions"]}
    assert steps == {"a": "keep", "b": "start"}


def test_a_new_input_is_a_new_generation(call, tmp_path):
    """The manifest pins its inputs: when they change it must say so, even if the plan is the same."""
    work = write_workload(tmp_path / "w", [train_task("a")])
    call("solve", work, "--gpus", 2, "--out", "run")
    workload = work / "workload.yaml"
    workload.write_text(workload.read_text() + "# a remark\n")
    ran = call("solve", work, "--gpus", 2, "--out", "run", "--format", "json")
    assert "generation 2" in ran.err
    assert [step["action"] for step in json.loads(ran.out)["spec"]["transitions"]] == ["keep"]


def test_a_plan_that_frees_gpus_settles(call, tmp_path):
    """After a task has left, the next plan keeps the rest, and the one after that is unchanged."""
    a, b = train_task("a"), train_task("b")
    work = write_workload(tmp_path / "shrink", [a, b])
    call("solve", work, "--gpus", 4, "--out", "run")
    write_workload(work, [a])
    assert "generation 2" in call("solve", work, "--gpus", 4, "--out", "run").err
    assert "unchanged" in call("solve", work, "--gpus", 4, "--out", "run").err


def test_json_and_yaml_say_the_same(call, folder):
    """People read the YAML and scripts the JSON of one plan."""
    words = ("solve", folder, "--gpus", 4, "--deterministic", "--format")
    assert yaml.safe_load(call(*words, "yaml").out) == json.loads(call(*words, "json").out)


def test_a_folder_in_use_is_exit_5(call, folder, tmp_path):
    """Two planners on one folder would take turns undoing each other."""
    run = tmp_path / "run"
    run.mkdir()
    with (run / ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = call("solve", folder, "--gpus", 4, "--out", run)
    assert ran.code == 5
    assert ran.out == ""
    assert ran.err.splitlines()[-1].startswith("libra-plan: another run is using the folder")
    assert not (run / CURRENT).exists()


def test_a_read_only_folder_is_one_line(call, folder, monkeypatch):
    """A mount that turned read-only is nobody's defect."""

    def read_only(path: Path, data: bytes) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(store, "write_atomically", read_only)
    ran = call("solve", folder, "--gpus", 4, "--out", "run")
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.splitlines()[-1].startswith(
        "libra-plan: run/manifest.json: cannot write there; got Read-only"
    )


@pytest.mark.parametrize("target", ["file", "file/run", "/proc/run"])
def test_a_folder_that_cannot_be_is_one_line(call, folder, tmp_path, target):
    """A file where the folder should be, or a place that takes no files, is a mistake to name."""
    (tmp_path / "file").write_text("")
    ran = call("solve", folder, "--gpus", 4, "--out", target)
    assert ran.code == 2
    assert ran.out == ""
    last = ran.err.splitlines()[-1]
    assert last.startswith("libra-plan: ")
    assert target.split("/")[0] in last


def test_a_tampered_manifest_is_refused(call, folder):
    """A manifest edited by hand may name GPUs that nobody gave; it must not become the parent."""
    call("solve", folder, "--gpus", 4, "--out", "run")
    path = Path("run", CURRENT)
    path.write_text(path.read_text().replace('"generation": 1', '"generation": 7', 1))
    for words in (("--from", "run"), ("--out", "run")):
        ran = call("solve", folder, "--gpus", 4, *words)
        assert ran.code == 2
        assert "digest" in ran.err.splitlines()[-1]
    assert call("validate", path).code == 2
    assert call("emit", "torchrun", "run").code == 2


def test_a_stale_parent_is_refused(call, folder, tmp_path):
    """A plan made from an older manifest than the folder's would undo what came between."""
    call("solve", folder, "--gpus", 4, "--out", "run")
    old = tmp_path / "old.json"
    old.write_bytes(Path("run", CURRENT).read_bytes())
    workload = folder / "workload.yaml"
    workload.write_text(workload.read_text() + "# again\n")
    call("solve", folder, "--gpus", 4, "--out", "run")
    workload.write_text(workload.read_text() + "# and again\n")
    ran = call("solve", folder, "--gpus", 4, "--from", old, "--out", "run")
    assert ran.code == 2
    assert "stale" in ran.err.splitlines()[-1]


def test_a_broken_manifest_is_moved_aside(call, folder):
    """A file that a crash cut short must not stop planning, nor be lost."""
    Path("run").mkdir()
    Path("run", CURRENT).write_text('{"apiVersion": "lib')
    ran = call("solve", folder, "--gpus", 4, "--out", "run")
    assert ran.code == 0
    assert "was broken" in ran.err
    assert Path("run", f"{CURRENT}.broken-1").exists()
    assert call("validate", Path("run", CURRENT)).code == 0


def test_what_cannot_run_is_exit_3_with_code_and_reason(call, tmp_path):
    """`no plan` is an answer: scripts need its code and people the limit that forbids one."""
    task = train_task("a")
    task["min_gpus"] = 99
    ran = call("solve", write_workload(tmp_path / "w", [task]), "--gpus", 2)
    assert ran.code == 3
    assert ran.out == ""
    last = ran.err.splitlines()[-1]
    assert last.startswith("libra-plan: no plan exists; got [limits] a: ")
    assert "min_gpus 99" in last


def test_a_task_beyond_the_measured_is_exit_3(call, tmp_path):
    """A model that refuses to extrapolate must say so in the reason, with its way out."""
    task = train_task("a")
    task["work_per_step"]["prompt_tokens"]["tokens"] = 131072
    task["roles"][0]["micro_batch_tokens"] = 131072
    ran = call("solve", write_workload(tmp_path / "w", [task]), "--gpus", 2)
    assert ran.code == 3
    assert "[refused] a: " in ran.err
    assert "--allow-prior" in ran.err


def test_a_tiny_limit_gives_the_best_so_far(call, tmp_path):
    """The splits made by hand are there at once, so a limit in hundredths still gives a plan."""
    tasks = [train_task(f"t{at}", samples=100 + 37 * at, weight=1 + at % 3) for at in range(12)]
    ran = call(
        "solve", write_workload(tmp_path / "w", tasks), "--gpus", 40, "--time-limit", 0.01, "--format", "json"
    )
    assert ran.code == 0
    proof = json.loads(ran.out)["spec"]["certificate"]
    assert proof["objective"] >= max(each["value"] for each in proof["baselines"]) - 1e-9


def test_explain_names_the_limit(call, folder):
    """`explain` is asked why: each task must get its binding limit, and a GPU more its worth."""
    ran = call("explain", folder, "--gpus", 3, "--format", "json")
    data = json.loads(ran.out)
    assert {each["task"] for each in data["explanation"]["tasks"]} == {"a", "b"}
    assert all(each["binding"] for each in data["explanation"]["tasks"])
    assert data["explanation"]["one_more_gpu"][0]["gain"] > 0


def test_emit_writes_what_it_prints(call, folder):
    """Files for a launcher can be looked at before they are written."""
    call("solve", folder, "--gpus", 4, "--out", "run")
    shown = json.loads(call("emit", "torchrun", "run", "--format", "json").out)
    assert call("emit", "torchrun", "run", "--out", "scripts").code == 0
    written = {str(path.relative_to("scripts")): path.read_text() for path in Path("scripts").rglob("*.*")}
    assert shown == {name: text for name, text in written.items() if name in shown}
    assert set(shown) <= set(written)
    assert len(shown) > 1


def test_launch_of_a_wrong_task_is_an_error_of_input(call, folder):
    """A role that cannot be started is told apart from bad input by its exit code."""
    call("solve", folder, "--gpus", 4, "--out", "run")
    ran = call("launch", "run", "--node", "node0", "--task", "nobody")
    assert ran.code == 2
    assert "allowed: a, b" in ran.err


@pytest.mark.parametrize("name", ["plan.pdf", "plan", "plan.svg.png"])
def test_a_picture_that_is_no_svg_is_refused_before_anything_is_solved(call, folder, name):
    """A PDF with SVG inside opens nowhere, and a solve takes its time."""
    ran = call("solve", folder, "--gpus", 4, "--picture", name, "--out", "run")
    assert (ran.code, ran.out) == (2, "")
    assert "--picture" in ran.err
    assert ".svg" in ran.err
    assert not Path("run").exists()


def test_a_plan_on_many_nodes_is_one_to_read(call, tmp_path):
    """The cell of a role on sixteen nodes was 160 characters wide."""
    task = train_task("a", samples=4096)
    task["min_gpus"] = 64
    ran = call("solve", write_workload(tmp_path / "w", [task]), "--gpus", 128, "--gpus-per-node", 4)
    assert ran.code == 0, ran.err
    assert re.search(r"node0…node[0-9]+:0-3 ", ran.out), ran.out
    tables = ran.out.partition("\n\nnode")[0]
    assert "tokens /s" in tables
    assert max(map(len, tables.splitlines())) < 160
