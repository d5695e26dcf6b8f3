from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from profile_files import workload_data, write_folder

from libra_plan.errors import WorkloadError
from libra_plan.profiles.catalog import load_folder, load_workload
from libra_plan.profiles.schema import Fixed, Histogram, LogNormal, Trace
from libra_plan.profiles.workload_checks import longest_tokens

Change = Callable[[dict[str, Any]], object]


def refusal(tmp_path: Path, change: Change) -> WorkloadError:
    """Load the small workload with one thing changed in its task."""
    data = workload_data()
    change(data["tasks"][0])
    with pytest.raises(WorkloadError) as caught:
        load_folder(write_folder(tmp_path, data), library=())
    assert caught.value.where is not None
    assert caught.value.where.line is not None
    return caught.value


def work(task: dict[str, Any], key: str, value: object) -> None:
    task["work_per_step"][key] = value


CASES: dict[str, tuple[Change, str, str]] = {
    "endless step": (
        lambda t: work(t, "samples", 2**17 + 1),
        "work_per_step.samples",
        "more samples in a step",
    ),
    "weight that drowns all others": (lambda t: t.update(weight=1e300), "weight", "≤ 1000000"),
    "more cores than any machine": (
        lambda t: t["roles"][2].update(cpu_cores_per_worker=1e300),
        "roles[2].cpu_cores_per_worker",
        "≤ 1000000",
    ),
    "endless workers": (lambda t: t["roles"][2].update(workers=10**12), "roles[2].workers", "≤ 1048576"),
    "endless staleness": (
        lambda t: t.update(coupling={"kind": "async", "staleness_steps": 2**63 - 1}),
        "coupling.staleness_steps",
        "≤ 1000000",
    ),
    "wait of ages": (
        lambda t: t["roles"][2].update(tool_wait_s_per_turn=1e300),
        "roles[2].tool_wait_s_per_turn",
        "≤ 1000000000",
    ),
    "sigma of no wait": (
        lambda t: t["roles"][2].update(tool_wait_s_per_turn=None, tool_wait_sigma=1.0),
        "roles[2].tool_wait_sigma",
        "spreads a wait that is not given",
    ),
    "same role": (lambda t: t["roles"][1].update(id="rollout"), "roles[1].id", "two roles have the id"),
    "no roles": (lambda t: t.update(roles=[]), "roles", "has no roles"),
    "only env": (lambda t: t.update(roles=t["roles"][2:]), "roles", "has no GPU role"),
    "no arrangement": (lambda t: t.update(arrangements=[]), "arrangements", "allows no arrangement"),
    "range": (lambda t: t.update(min_gpus=4, max_gpus=2), "min_gpus", "`min_gpus` is above `max_gpus`"),
    "async": (
        lambda t: t.update(coupling={"kind": "async"}),
        "coupling.staleness_steps",
        "needs a staleness",
    ),
    "stale sync": (
        lambda t: t.update(coupling={"kind": "sync", "staleness_steps": 1}),
        "coupling.staleness_steps",
        "sync coupling has no staleness",
    ),
    "pipelined": (lambda t: t.update(coupling={"kind": "pipelined"}), "coupling.groups", "needs `groups`"),
    "groups": (
        lambda t: t.update(coupling={"kind": "sync", "groups": 2}),
        "coupling.groups",
        "only pipelined coupling has `groups`",
    ),
    "nothing to generate": (
        lambda t: t["work_per_step"].pop("response_tokens"),
        "work_per_step",
        "no `response_tokens`",
    ),
    "history of nothing": (
        lambda t: (t["work_per_step"].pop("response_tokens"), t["work_per_step"].update(history_tokens=[9])),
        "work_per_step.history_tokens",
        "a history of response lengths but no `response_tokens`",
    ),
    "median": (
        lambda t: t["work_per_step"]["response_tokens"].update(median_tokens=2000),
        "work_per_step.response_tokens.median_tokens",
        "`median_tokens` is above `max_tokens`",
    ),
    "edges": (
        lambda t: work(
            t, "prompt_tokens", {"kind": "histogram", "edges_tokens": [1, 5, 5], "counts": [1, 1]}
        ),
        "work_per_step.prompt_tokens.edges_tokens[2]",
        "must ascend",
    ),
    "bins": (
        lambda t: work(t, "prompt_tokens", {"kind": "histogram", "edges_tokens": [1, 5], "counts": [1, 1]}),
        "work_per_step.prompt_tokens.edges_tokens",
        "one more edge than counts",
    ),
    "no counts": (
        lambda t: work(t, "prompt_tokens", {"kind": "histogram", "edges_tokens": [1, 5], "counts": [0]}),
        "work_per_step.prompt_tokens.counts",
        "counts nothing",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_task_that_contradicts_itself_names_its_key(tmp_path: Path, case: str) -> None:
    """Types cannot say these things; the solver would say them as `infeasible`, or not at all."""
    change, key, words = CASES[case]
    error = refusal(tmp_path, change)
    assert words in error.what
    assert error.where is not None
    assert error.where.key == ("tasks[0]." + key)


def test_two_tasks_with_one_id_name_both_lines(tmp_path: Path) -> None:
    """Plans and manifests are keyed by task id."""
    data = workload_data()
    data["tasks"].append(workload_data()["tasks"][0])
    with pytest.raises(WorkloadError, match="two tasks have the id `rl`; got the other on line"):
        load_folder(write_folder(tmp_path, data), library=())


def test_a_workload_without_tasks_is_refused(tmp_path: Path) -> None:
    """An empty plan would look like a success."""
    with pytest.raises(WorkloadError, match="no tasks"):
        load_folder(write_folder(tmp_path, {"schema_version": 1, "tasks": []}), library=())


def test_a_trace_lies_beside_the_workload(tmp_path: Path) -> None:
    """The path is relative to the workload, and the trace is an input with a digest."""
    data = workload_data()
    work(data["tasks"][0], "prompt_tokens", {"kind": "trace", "file": "lengths.txt"})
    root = write_folder(tmp_path, data)
    with pytest.raises(WorkloadError, match=r"lengths\.txt: no such file"):
        load_folder(root, library=())
    (root / "lengths.txt").write_text("90\n100\n", encoding="utf-8")
    assert "lengths.txt" in load_folder(root, library=()).digests
    (root / "lengths.txt").write_text("90\n101\n", encoding="utf-8")
    with pytest.raises(WorkloadError, match="allowed: 1101 or more"):
        load_folder(root, library=())


def test_a_workload_can_be_read_without_profiles(tmp_path: Path) -> None:
    """An editor's check of one file does not need the measurements."""
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump(workload_data()), encoding="utf-8")
    workload, digests = load_workload(path)
    assert workload.tasks[0].id == "rl"
    assert list(digests) == ["w.yaml"]


def test_the_longest_length_of_each_distribution() -> None:
    """Budgets are checked against it, so an empty last bin must not count."""
    assert longest_tokens(Fixed(tokens=7)) == 7
    assert longest_tokens(LogNormal(median_tokens=3, sigma=1, max_tokens=9)) == 9
    assert longest_tokens(Histogram(edges_tokens=(0, 5, 10, 20), counts=(1, 2, 0))) == 10
    assert longest_tokens(Trace(file="x"), (3, 8, 5)) == 8
