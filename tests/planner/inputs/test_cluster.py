"""From flags to a cluster: what is taken for granted is said, and what cannot be planned on is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from cli_run import train_task, write_workload
from plans import cluster as cluster_of

from libra_plan.errors import ClusterError, InputError
from libra_plan.planner.inputs.cluster import ClusterFlags, measured_mib, read_cluster, unknown_memory
from libra_plan.planner.inputs.problem import load
from libra_plan.profiles.catalog import load_cluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return load(write_workload(tmp_path_factory.mktemp("work"), [train_task("a")]))


def written(path: Path, *nodes: dict) -> Path:
    """Write a cluster file."""
    path.write_text(yaml.safe_dump({"schema_version": 1, "nodes": list(nodes)}), encoding="utf-8")
    return path


def no_notes(text: str) -> None:
    raise AssertionError(text)


def test_equal_gpus_have_the_memory_that_profiles_were_measured_with(folder):
    """A plan for more memory than was measured would not fit."""
    cluster = read_cluster(folder, ClusterFlags(gpus=6, gpus_per_node=4), no_notes)
    assert [len(node.gpus) for node in cluster] == [4, 2]
    assert {gpu.memory_mib for gpu in cluster.gpus.values()} == set(measured_mib(folder).values())


def test_a_cluster_that_is_one_already_is_taken_as_it_is(folder):
    """Programs make clusters of their own."""
    cluster = cluster_of(2)
    assert read_cluster(folder, ClusterFlags(cluster=cluster), no_notes) is cluster


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (ClusterFlags(gpus=2, local=True), "more than one cluster was named"),
        (ClusterFlags(), "no cluster was named"),
        (ClusterFlags(gpus=2, gpu_class="h200_smx"), "did you mean `h200_sxm`?"),
    ],
)
def test_flags_that_name_no_cluster_are_refused(folder, flags, said):
    """Whatever would be guessed here would be planned for."""
    with pytest.raises(InputError) as told:
        read_cluster(folder, flags, no_notes)
    assert said in str(told.value)


def test_memory_that_is_not_stated_is_taken_from_the_profiles_and_said(folder, tmp_path):
    """The user may know better."""
    path = written(tmp_path / "c.yaml", {"id": "n0", "gpu_class": "h200_sxm", "gpu_count": 2})
    said: list[str] = []
    cluster = read_cluster(folder, ClusterFlags(cluster=str(path)), said.append)
    (mib,) = measured_mib(folder).values()
    assert cluster.memory_mib("h200_sxm") == mib
    assert [line.partition(":")[0] for line in said] == ["gpu_memory_mib is not stated for n0"]
    assert "h200_sxm" in unknown_memory(load_cluster(path)[0], {})[0]
    assert unknown_memory(load_cluster(path)[0], measured_mib(folder)) == []


def test_a_cluster_without_a_measured_gpu_is_refused_and_one_beside_others_warned_of(folder, tmp_path):
    """Otherwise the plan would be that nothing can run, without a word why."""
    known = {"id": "n0", "gpu_class": "h200_sxm", "gpu_count": 1, "gpu_memory_mib": 143155}
    other = {"id": "n1", "gpu_class": "b300", "gpu_count": 1, "gpu_memory_mib": 270000}
    said: list[str] = []
    read_cluster(folder, ClusterFlags(cluster=written(tmp_path / "two.yaml", known, other)), said.append)
    assert said == ["warning: no profile was measured on GPU class b300; measured: h200_sxm"]
    with pytest.raises(ClusterError, match=r"got b300; allowed: h200_sxm; correct it, or measure"):
        read_cluster(folder, ClusterFlags(cluster=written(tmp_path / "one.yaml", other)), no_notes)
