"""`validate` checks whatever can be checked, and refuses what it cannot rather than call it sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_run import train_task, write_workload

NODE = {"id": "node-a", "gpu_class": "h200_sxm", "gpu_count": 4}


def cluster(path: Path, **changes: object) -> Path:
    text = yaml.safe_dump({"schema_version": 1, "name": "lab", "nodes": [{**NODE, **changes}]})
    path.write_text(text, encoding="utf-8")
    return path


def test_a_folder_of_solve_is_checked(call, folder):
    """The manifest in it is what will be started, so its digest counts."""
    call("solve", folder, "--gpus", 4, "--out", "run")
    ran = call("validate", "run")
    assert ran.code == 0, ran.err
    assert "generation 1, 2 tasks" in ran.out
    path = Path("run/manifest.json")
    path.write_text(path.read_text().replace('"generation": 1', '"generation": 7', 1))
    ran = call("validate", "run")
    assert ran.code == 2
    assert "run/manifest.json" in ran.err
    assert "digest" in ran.err


def test_a_digest_to_paste_in_is_not_offered(call, folder):
    """Who pastes the right digest into a wrong manifest has a wrong manifest that nobody can tell."""
    call("solve", folder, "--gpus", 4, "--out", "run")
    path = Path("run/manifest.json")
    data = json.loads(path.read_text())
    data["metadata"]["generation"] = 7
    path.write_text(json.dumps(data))
    ran = call("solve", folder, "--gpus", 4, "--out", "run")
    assert ran.code == 2
    assert "move it away to start anew, or name another folder as out (--out)" in ran.err
    for words in (("solve", folder, "--gpus", 4, "--out", "run"), ("validate", "run"), ("launch", "run")):
        said = call(*words).err
        assert said.count("sha256:") == 1
        assert data["metadata"]["digest"] in said


@pytest.mark.parametrize("name", ["empty", "docs", "scripts"])
def test_a_folder_with_nothing_to_check_is_refused(call, folder, name):
    """`sound` about a folder of which nothing was read is worth less than nothing."""
    Path(name).mkdir()
    if name == "docs":
        Path(name, "notes.md").write_text("words\n")
    if name == "scripts":
        call("solve", folder, "--gpus", 4, "--out", "run")
        assert call("emit", "torchrun", "run", "--out", name).code == 0
    ran = call("validate", name)
    assert (ran.code, ran.out) == (2, "")
    assert "nothing to check" in ran.err
    assert "manifest.json" in ran.err
    assert ("launcher's files" in ran.err) == (name == "scripts")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("cluster.yaml", "{schema_version: 1, name: lab}", "nodes"),
        ("mine.yaml", "{schema_version: 1, name: lab, intra_node_gib_per_s: 365}", "nodes"),
        ("cluster.yaml", "{}", "schema_version"),
        ("manifest.json", "{}", "apiVersion is missing"),
        ("manifest.yaml", "{kind: PlacementManifest}", "apiVersion is missing"),
        ("other.yaml", "{}", "the keys none"),
        ("workload.yaml", "{schema_version: 1, tasks: []}", "validate ."),
    ],
)
def test_what_is_missing_is_said(call, name, text, said):
    """A file that lacks its main key is still recognised by the rest, or by its name."""
    Path(name).write_text(text, encoding="utf-8")
    ran = call("validate", name)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert said in ran.err


@pytest.mark.parametrize(
    ("limits", "key", "said"),
    [
        (
            {"pinned_gpus": ["node-a:0", "node-a:9"]},
            "pinned_gpus[1]",
            "node-a:0, node-a:1, node-a:2, node-a:3",
        ),
        ({"excluded_gpus": ["node-b:0"]}, "excluded_gpus[0]", "did you mean `node-a:0`?"),
        ({"excluded_gpus": ["rack7:0"]}, "excluded_gpus[0]", "allowed: GPUs of node-a"),
        ({"pinned_gpus": ["GPU-123"]}, "pinned_gpus[0]", "UUID"),
    ],
)
def test_a_gpu_that_is_not_there_is_found_with_its_line(call, tmp_path, limits, key, said):
    """`validate` and `solve` must both find it, and say where to correct it."""
    task = train_task("a")
    task["roles"][0].update(limits)
    work = write_workload(tmp_path / "w", [task])
    where = cluster(work / "cluster.yaml", gpu_memory_mib=143155)
    name = limits[key.partition("[")[0]][-1]
    lines = (work / "workload.yaml").read_text().splitlines()
    line = next(at for at, text in enumerate(lines, 1) if text.strip() == f"- {name}")
    for words in (("validate", work), ("solve", work), ("solve", work, "--cluster", where)):
        ran = call(*words)
        assert ran.code == 2
        last = ran.err.splitlines()[-1]
        assert f"workload.yaml:{line}: tasks[0].roles[0].{key}: " in last
        assert "task `a`, role `reward-model`" in last
        assert said in last


def test_one_gpu_by_two_names_is_found(call, tmp_path):
    """An index and a UUID can be one card, which no text comparison sees."""
    task = train_task("a")
    task["roles"][0].update({"pinned_gpus": ["node-a:0"], "excluded_gpus": ["GPU-zero"]})
    work = write_workload(tmp_path / "w", [task])
    gpus = [{"index": 0, "uuid": "GPU-zero"}, {"index": 1, "uuid": "GPU-one"}]
    cluster(work / "cluster.yaml", gpu_memory_mib=143155, gpus=gpus, gpu_count=None)
    ran = call("validate", work)
    assert ran.code == 2
    assert "one GPU is named twice; got node-a:0 and GPU-zero" in ran.err


def test_memory_that_is_not_stated_comes_from_the_profiles(call, tmp_path):
    """What `solve` plans with `validate` must accept, and both must say whose number it is."""
    work = write_workload(tmp_path / "w", [train_task("a")])
    where = cluster(work / "cluster.yaml")
    for words in (("validate", work), ("solve", work), ("solve", work, "--cluster", where)):
        ran = call(*words)
        assert ran.code == 0, ran.err
        assert "gpu_memory_mib is not stated for node-a: " in ran.err
        assert "MiB taken" in ran.err
    alone = call("validate", where)
    assert alone.code == 0
    assert "cannot be known without a profile measured on h200_sxm" in alone.out
    cluster(where, gpu_memory_mib=143155)
    for words in (("validate", work), ("solve", work), ("validate", where)):
        ran = call(*words)
        assert "gpu_memory_mib" not in ran.out + ran.err


def test_a_folder_of_only_a_cluster_is_checked(call, tmp_path):
    """A cluster kept apart from workloads has no profile to take the memory from."""
    cluster(tmp_path / "cluster.yaml")
    (tmp_path / "only").mkdir()
    (tmp_path / "cluster.yaml").rename(tmp_path / "only" / "cluster.yaml")
    ran = call("validate", tmp_path / "only")
    assert ran.code == 0, ran.err
    assert "cannot be known" in ran.out
