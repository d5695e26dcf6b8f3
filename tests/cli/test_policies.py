"""`--policy` and `--budget` on the command line: what is printed, and what is written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_run import train_task, write_workload


@pytest.fixture
def priced(tmp_path: Path) -> Path:
    """Two training tasks of two teams and tiers on four GPUs at 2.50; `a` asks for the impossible."""
    tasks = [
        {**train_task("a"), "team": "red", "min_steps_per_hour": 1e9},
        {**train_task("b", model="1.5b"), "team": "blue", "tier": 1},
    ]
    folder = write_workload(tmp_path / "work", tasks)
    path = folder / "workload.yaml"
    data = yaml.safe_load(path.read_text())
    data["quotas"] = {"red": {"gpus": 1}, "blue": {"gpus": 1}}
    path.write_text(yaml.safe_dump(data))
    node = {"id": "n0", "gpu_class": "h200_sxm", "gpu_count": 4, "cpu_cores": 96, "host_memory_mib": 1e6}
    cluster = {"schema_version": 1, "nodes": [node], "price_per_gpu_hour": {"h200_sxm": 2.5}}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    return folder


def test_the_table_says_what_it_costs_and_who_misses_what(call, priced):
    """The answer to `what does it cost` and `why is it late` must not need the JSON."""
    out = call("solve", priced, "--policy", "fair-share", "--budget", 7.5).out
    assert "an hour, of a budget of 7.50" in out
    assert "team red:" in out
    assert "missed [deadline] a: asks 1e+09 steps/h" in out
    tiers = call("solve", priced, "--policy", "priority").out
    assert "tier 0: " in tiers
    assert "tier 1: " in tiers


def test_the_manifest_carries_what_the_policy_promised(call, priced):
    """Scripts read codes and figures from the certificate, and plain plans stay as they were."""
    ran = call("solve", priced, "--policy", "fair-share", "--budget", 7.5, "--format", "json")
    proof = json.loads(ran.out)["spec"]["certificate"]
    assert proof["budgetPerHour"] == 7.5
    assert proof["costPerHour"] <= 7.5
    assert [team["team"] for team in proof["teams"]] == ["blue", "red"]
    assert [each["code"] for each in proof["deadlines"]] == ["deadline"]
    assert {"quota", "borrow"} <= {each["name"] for each in proof["passes"]}
    plain = json.loads(call("solve", priced, "--gpus", 2, "--format", "json").out)["spec"]["certificate"]
    assert not {"budgetPerHour", "costPerHour", "teams"} & plain.keys()


def test_a_budget_without_prices_is_refused_with_the_key_to_write(call, priced):
    """--gpus N has no prices, so the budget cannot be kept; guessing none would keep any."""
    ran = call("solve", priced, "--gpus", 2, "--budget", 5)
    assert ran.code == 2
    assert "price_per_gpu_hour: {h200_sxm: 2.50}" in ran.err
