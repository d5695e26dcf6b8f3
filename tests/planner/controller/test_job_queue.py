"""What users ask of the queue: noted, refused where it would do nothing, and in the next workload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from cli_run import train_task, write_workload
from loops import at, scaling, well, world

from libra_plan.errors import InputError, StateError, WorkloadError
from libra_plan.planner.controller import replan
from libra_plan.planner.controller.hysteresis import ReplanPolicy
from libra_plan.planner.controller.job_queue import (
    TaskRequest,
    add_tasks,
    change_task,
    forget_removed,
    list_tasks,
    paused_tasks,
    read_requests,
    waits_of,
    with_requests,
)
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import Clock, LoopState, TaskClock
from libra_plan.planner.controller.store import StateStore
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.document import placements_of
from libra_plan.planner.launchers.store import write_manifest
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.profiles.schema import Fixed, RoleSpec, TaskSpec, WorkloadFile, WorkSpec

WORK = WorkSpec(samples=8, prompt_tokens=Fixed(tokens=16))
PROBLEM = world(4, [scaling("a", 100.0, 0.5, 4), scaling("b", 100.0, 0.5, 4)])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a plan of two tasks."""
    write_manifest(tmp_path, build_manifest(PROBLEM, solve_problem(PROBLEM).require_plan(), name="lab"))
    return tmp_path


def spec(name: str, **more: object) -> TaskSpec:
    return TaskSpec(id=name, work_per_step=WORK, roles=(RoleSpec(id="r", kind="rollout"),), **more)


def workload(*tasks: TaskSpec) -> WorkloadFile:
    return WorkloadFile(schema_version=1, tasks=tasks)


def file_of(folder: Path, *names: str) -> Path:
    return write_workload(folder / "more", [train_task(name) for name in names]) / "workload.yaml"


def request(name: str, state: str, **more: object) -> TaskRequest:
    fields = {"weight": None, "tier": None, "spec": None, "since_s": 0.0, "reason": ""}
    return TaskRequest(name, state, **{**fields, **more})


def test_requests_add_up(run: Path) -> None:
    """A later wish changes what it names; what was asked before stays."""
    change_task(run, "a", "priority", weight=4.0, reason="demo")
    change_task(run, "a", "priority", tier=2)
    change_task(run, "a", "pause", reason="maintenance")
    (asked,) = list_tasks(run).asked
    assert (asked.id, asked.state, asked.weight, asked.tier, asked.reason) == (
        "a", "paused", 4.0, 2, "maintenance",
    )  # fmt: skip
    change_task(run, "a", "resume")
    assert list_tasks(run).asked[0].state == "wanted"


@pytest.mark.parametrize(
    ("task", "change", "said"),
    [("aa", "pause", "no such task; got aa; allowed: a, b"), ("a", "priority", "nothing to set")],
)
def test_what_would_do_nothing_is_refused(run: Path, task: str, change: str, said: str) -> None:
    """A slip of the pen must not look like a success."""
    with pytest.raises(InputError, match=said):
        change_task(run, task, change)


def test_no_record_is_begun_where_there_is_no_plan(tmp_path: Path) -> None:
    """A mistyped folder is named, and not made."""
    with pytest.raises(StateError, match="no plan to look after"):
        change_task(tmp_path / "slip", "a", "pause")
    assert not (tmp_path / "slip").exists()


def test_tasks_are_added_all_or_none(run: Path) -> None:
    """A task that the plan has is refused with all of its file; removed before, it may come back."""
    with pytest.raises(InputError, match="there is such a task already; got b"):
        add_tasks(run, file_of(run, "new", "b"))
    assert list_tasks(run).asked == ()
    change_task(run, "b", "remove")
    assert add_tasks(run, file_of(run, "new", "b")) == ["new", "b"]
    with pytest.raises(InputError, match="got new"):
        add_tasks(run, file_of(run, "new"))
    assert {each.id: each.state for each in list_tasks(run).asked} == {"b": "added", "new": "added"}


def test_a_removed_task_cannot_be_paused(run: Path) -> None:
    """A pause would bring back what its user removed."""
    change_task(run, "b", "remove")
    with pytest.raises(InputError, match="removed already"):
        change_task(run, "b", "pause")


def test_added_tasks_that_were_removed_are_forgotten_once_they_do_not_run(run: Path) -> None:
    """The request of a task of the workload file stays: the file still lists it."""
    add_tasks(run, file_of(run, "new"))
    change_task(run, "new", "remove")
    change_task(run, "b", "remove")
    store = StateStore.open(run / "replan.db")
    forget_removed(store, ["new"])
    assert {each.id for each in read_requests(store)} == {"b", "new"}
    forget_removed(store, [])
    assert {each.id for each in read_requests(store)} == {"b"}


def test_the_workload_as_users_want_it() -> None:
    """Weights, tiers, waits, removed and added tasks; of a task that is in both, the file's counts."""
    added = msgspec.json.encode(spec("new", weight=7.0)).decode()
    again = msgspec.json.encode(spec("a", weight=7.0)).decode()
    wanted = with_requests(
        workload(spec("a", waited_s=5.0), spec("b"), spec("c", waited_s=50.0)),
        [
            request("a", "added", spec=again, tier=1),
            request("b", "removed"),
            request("c", "wanted", weight=3.0),
            request("new", "added", spec=added),
        ],
        {"a": 20.0, "c": 10.0},
    )
    assert [(task.id, task.weight, task.tier, task.waited_s) for task in wanted.tasks] == [
        ("a", 1.0, 1, 20.0),
        ("c", 3.0, 0, 50.0),
        ("new", 7.0, 0, 0.0),
    ]


def test_a_queue_that_removes_everything_is_refused() -> None:
    """There would be nothing to plan."""
    with pytest.raises(WorkloadError, match="no task is left"):
        with_requests(workload(spec("a")), [request("a", "removed")], {})


def test_waits_are_counted_by_the_loops_clock() -> None:
    """A wall clock that was set makes nobody wait longer."""
    state = LoopState(clock=Clock(100.0), clocks=(TaskClock("a", waits_since_s=40.0), TaskClock("b", 3.0)))
    assert waits_of(state) == {"a": 60.0}


def test_a_pause_and_a_resume_are_acted_on(run: Path) -> None:
    """At the next look, and how long the task waits is known then."""
    store, eager = StateStore.open(run / "replan.db"), ReplanPolicy()
    number = 0

    def look() -> list[tuple[str, str]]:
        nonlocal number
        number += 1

        def facts(parent, requests, state):
            problem = replace(PROBLEM, running=placements_of(parent))
            now = at(number)
            return LoopInputs(problem, eager, now, well(problem, now), paused_tasks(requests)), None

        return [(move.task, move.action) for move in replan.look(run, store, facts).decision.moves]

    change_task(run, "a", "pause", reason="maintenance")
    assert ("a", "pause") in look()
    look()
    assert list_tasks(run).waits_s["a"] >= 60.0
    change_task(run, "a", "resume")
    assert ("a", "start") in look()
