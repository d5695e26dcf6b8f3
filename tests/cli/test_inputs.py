"""From flags to a cluster and profiles: what is warned of, and what is refused before solving."""

from __future__ import annotations

import shutil

import pytest
import yaml
from cli_run import train_task, write_workload

from libra_plan.planner.inputs.price import set_aside_notes
from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.counting import counted

ASIDE = "h200-qwen2.5-1.5b-score"


def scoring(folder, profile):
    """Write a workload whose reference uses a profile."""
    task = train_task("a")
    work = {"samples": 8, "prompt_tokens": {"kind": "fixed", "tokens": 1024}}
    role = {"id": "reference", "kind": "reference", "profiles": [profile], "micro_batch_tokens": 4096}
    return write_workload(folder, [{**task, "work_per_step": work, "roles": [*task["roles"], role]}])


def test_rows_set_aside_are_told_of_own_and_of_borrowed_profiles_alike(tmp_path):
    """A plan rests on the same rows, wherever the profile lies."""
    borrowed = list(set_aside_notes(load_folder(scoring(tmp_path / "shipped", ASIDE))))
    root = scoring(tmp_path / "own", ASIDE)
    shutil.copytree(shipped_folder() / ASIDE, root / ASIDE)
    folder = load_folder(root)
    (note,) = (line for line in set_aside_notes(folder) if ASIDE in line)
    count = len(folder.profiles[ASIDE].set_aside)
    assert list(set_aside_notes(folder)) == borrowed
    assert note.startswith(f"{counted(count, 'row')} of {ASIDE} ")
    assert any(ASIDE in line for line in folder.warnings), "validate says why"


def cluster(path, *classes):
    """Write a cluster of one node a class."""
    nodes = [
        {"id": f"n{at}", "gpu_class": name, "gpu_count": 2, "gpu_memory_mib": 143155}
        for at, name in enumerate(classes)
    ]
    path.write_text(yaml.safe_dump({"schema_version": 1, "nodes": nodes}))
    return path


@pytest.mark.parametrize("way", ["flag", "folder"])
def test_a_misspelt_class_is_refused_with_the_right_one(call, folder, tmp_path, way):
    """Without a word the plan would be that nothing can run."""
    if way == "flag":
        ran = call("solve", folder, "--cluster", cluster(tmp_path / "c.yaml", "h200_smx"))
    else:
        cluster(folder / "cluster.yaml", "h200_smx")
        ran = call("solve", folder)
    assert ran.code == 2
    assert "GPU class of the cluster; got h200_smx; allowed: h200_sxm; did you mean `h200_sxm`?" in ran.err
    ran = call("solve", folder, "--gpus", 2, "--gpu-class", "h200_smx")
    assert ran.code == 2
    assert "did you mean `h200_sxm`?" in ran.err


def test_a_class_nobody_measured_beside_others_is_a_warning(call, folder, tmp_path):
    """A cluster may hold cards that no profile is for; they stay idle."""
    ran = call("solve", folder, "--cluster", cluster(tmp_path / "c.yaml", "b300", "h200_sxm"))
    assert ran.code == 0, ran.err
    assert "warning: no profile was measured on GPU class b300; measured: h200_sxm" in ran.err


@pytest.mark.parametrize("stated", [True, False])
def test_validate_names_the_class_that_was_meant(call, folder, stated):
    """With its memory stated a misspelt class is warned of; without, it cannot be planned on."""
    path = cluster(folder / "cluster.yaml", "h200_smx")
    path.write_text(
        "\n".join(line for line in path.read_text().splitlines() if stated or "memory" not in line)
    )
    ran = call("validate", folder)
    assert ran.code == (0 if stated else 2)
    assert "did you mean `h200_sxm`?" in ran.out + ran.err
