"""GPUs that a workload names must be there, each once; the message leads to the line."""

from __future__ import annotations

import pytest
from cli_run import train_task, write_workload
from plans import cluster as cluster_of

from libra_plan.errors import WorkloadError
from libra_plan.planner.inputs.gpu_names import check_gpu_names
from libra_plan.planner.inputs.problem import load


def folder_with(path, **limits):
    """Write and load a workload whose only role names GPUs."""
    task = train_task("a")
    task["roles"] = [{**task["roles"][0], **limits}]
    return load(write_workload(path, [task]))


def test_names_of_gpus_that_are_there_pass(tmp_path):
    """Both ways to name a GPU are for users."""
    folder = folder_with(tmp_path / "w", pinned_gpus=["n0:0"], excluded_gpus=["GPU-n0-1"])
    assert check_gpu_names(folder, cluster_of(2)) is None


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"pinned_gpus": ["n0:7"]}, "n0:0, n0:1"),
        ({"excluded_gpus": ["n00:1"]}, "did you mean `n0:1`?"),
        ({"excluded_gpus": ["n0:0", "GPU-n0-0"]}, "one GPU is named twice"),
    ],
)
def test_a_name_of_no_gpu_is_refused_where_it_stands(tmp_path, limits, said):
    """An exclusion that excludes nothing would let a role on the GPU that it must not have."""
    with pytest.raises(WorkloadError) as told:
        check_gpu_names(folder_with(tmp_path / "w", **limits), cluster_of(2))
    assert said in str(told.value)
    assert told.value.where is not None
    assert told.value.where.line
    assert "roles[0]" in str(told.value.where)
