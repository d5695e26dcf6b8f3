"""What policies read from the workload and the cluster file, and slips there that must not pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from profile_files import workload_data, write_folder

from libra_plan.errors import ClusterError, WorkloadError
from libra_plan.models.clusters import cluster_of
from libra_plan.profiles.catalog import load_cluster, load_folder


def loaded(tmp_path: Path, of_task: dict[str, Any], **of_workload: Any) -> Any:
    data = workload_data()
    data["tasks"][0].update(of_task)
    data.update(of_workload)
    return load_folder(write_folder(tmp_path, data), library=()).workload


def test_what_policies_read_is_read(tmp_path: Path) -> None:
    """Each key arrives with its unit, quotas by team."""
    asks = {"tier": 2, "team": "red", "deadline": {"steps": 10, "within_s": 60}, "latency_first": True}
    more = {"min_steps_per_hour": 5, "waited_s": 30}
    quotas = {"red": {"gpus": 8, "gpus_of_class": {"h200_sxm": 4}}}
    workload = loaded(tmp_path, asks | more, quotas=quotas, aging_s=600)
    task = workload.tasks[0]
    assert (task.tier, task.team, task.latency_first, task.waited_s) == (2, "red", True, 30)
    assert (task.deadline.steps, task.deadline.within_s, task.min_steps_per_hour) == (10, 60, 5)
    assert (workload.quotas["red"].gpus, workload.quotas["red"].gpus_of_class) == (8, {"h200_sxm": 4})


@pytest.mark.parametrize(
    ("of_task", "of_workload", "key", "words"),
    [
        ({"team": "rde"}, {"quotas": {"red": {"gpus": 8}}}, "tasks[0].team", "has no quota; got rde"),
        ({"waited_s": 30}, {}, "tasks[0].waited_s", "does not say what that counts"),
        ({"tier": -1}, {}, "tasks[0].tier", "-1"),
        ({"deadline": {"steps": 1, "within_s": 0}}, {}, "tasks[0].deadline.within_s", "0"),
        ({}, {"quotas": {"blue": {"gpus": 8}, "red": {"gpu": 8}}}, "quotas.red.gpu", "did you mean `gpus`"),
    ],
)
def test_slips_are_refused_where_they_are(
    tmp_path: Path, of_task: dict[str, Any], of_workload: dict[str, Any], key: str, words: str
) -> None:
    """A mistyped team would only borrow, and one that waits without `aging_s` would wait for nothing."""
    with pytest.raises(WorkloadError) as caught:
        loaded(tmp_path, of_task, **of_workload)
    assert key in str(caught.value)
    assert words in str(caught.value)


def test_prices_are_by_class_and_of_classes_there_are(tmp_path: Path) -> None:
    """A price for a class that is mistyped would make the other one's unknown."""
    data: dict[str, Any] = {"schema_version": 1, "nodes": [{"id": "n", "gpu_class": "h", "gpu_count": 1}]}
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(data | {"price_per_gpu_hour": {"h": 2.5}}), encoding="utf-8")
    assert cluster_of(load_cluster(path)[0], {"h": 1000.0}).price_per_gpu_hour == (("h", 2.5),)
    path.write_text(yaml.safe_dump(data | {"price_per_gpu_hour": {"hh": 2.5}}), encoding="utf-8")
    with pytest.raises(ClusterError, match=r"price_per_gpu_hour\.hh: `hh` has a price, but no node"):
        load_cluster(path)
