"""Which tasks may share pools: what cannot work is refused where it is written, with every reason."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from profile_files import workload_data, write_folder

from libra_plan.errors import WorkloadError
from libra_plan.profiles.catalog import load_folder

Change = Callable[[dict[str, Any]], object]


def two_tasks(kind: str) -> dict[str, Any]:
    """Make two tasks that may share, of the small workload's one."""
    data = workload_data()
    first = data["tasks"][0]
    data["tasks"] = [first, {**copy.deepcopy(first), "id": "other"}]
    data["sharing"] = [{"kind": kind, "tasks": [first["id"], "other"]}]
    return data


def rollout(data: dict[str, Any]) -> dict[str, Any]:
    return next(role for role in data["tasks"][1]["roles"] if role["kind"] == "rollout")


def loaded(tmp_path: Path, data: dict[str, Any]):
    return load_folder(write_folder(tmp_path, data), library=())


def test_alike_tasks_may_share(tmp_path):
    """The tasks that sharing is for pass."""
    assert loaded(tmp_path, two_tasks("turns")).workload.sharing[0].kind == "turns"


CASES: dict[str, tuple[str, Change, str, str]] = {
    "unknown task": (
        "turns",
        lambda d: d["sharing"][0].update(tasks=["other", "othr"]),
        "sharing[0].tasks[1]",
        "no task `othr`",
    ),
    "one task": ("turns", lambda d: d["sharing"][0].update(tasks=["other"]), "sharing[0]", "different tasks"),
    "itself": (
        "turns",
        lambda d: d["sharing"][0].update(tasks=["other", "other"]),
        "sharing[0]",
        "different tasks",
    ),
    "async in turn": (
        "turns",
        lambda d: [t.update(coupling={"kind": "async", "staleness_steps": 1}) for t in d["tasks"]],
        "sharing[0]",
        "other is async",
    ),
    "colocated only": (
        "turns",
        lambda d: d["tasks"][1].update(arrangements=["colocated"]),
        "sharing[0]",
        "no arrangement but colocated",
    ),
    "deadline": (
        "turns",
        lambda d: d["tasks"][1].update(deadline={"steps": 5, "within_s": 9}),
        "sharing[0]",
        "other has `deadline`",
    ),
    "pinned": (
        "turns",
        lambda d: rollout(d).update(excluded_gpus=["n0:0"]),
        "sharing[0]",
        "pinned or excluded",
    ),
    "one engine": (
        "engine",
        lambda d: None,
        "sharing[0].kind",
        "`engine` sharing was removed: no launcher can start it",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sharing_that_cannot_work_is_refused(tmp_path, name):
    """The message names the place and the reason, not the consequence hours later."""
    kind, change, key, said = CASES[name]
    data = two_tasks(kind)
    change(data)
    with pytest.raises(WorkloadError) as caught:
        loaded(tmp_path, data)
    assert said in str(caught.value)
    assert caught.value.where is not None
    assert caught.value.where.key == key


def test_three_tasks_do_not_take_turns(tmp_path):
    """Two pools have work for two; a third would wait."""
    data = two_tasks("turns")
    data["tasks"].append({**copy.deepcopy(data["tasks"][0]), "id": "third"})
    data["sharing"][0]["tasks"].append("third")
    with pytest.raises(WorkloadError, match="two tasks take turns, not 3"):
        loaded(tmp_path, data)


def test_adapters_are_for_rollouts(tmp_path):
    """A trainer's adapters are in its profile; `lora` there would be ignored."""
    data = two_tasks("turns")
    actor = next(role for role in data["tasks"][0]["roles"] if role["kind"] == "actor_train")
    actor["lora"] = {"rank": 8}
    with pytest.raises(WorkloadError, match="`lora` is for rollout roles"):
        loaded(tmp_path, data)
