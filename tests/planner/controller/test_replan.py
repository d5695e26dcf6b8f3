"""A run and its record: killed anywhere, the old plan or the new is there, and nothing decided is lost."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_run import environment
from loops import at, running_best, scaling, well, world

from libra_plan.errors import ManifestError
from libra_plan.planner.controller import replan
from libra_plan.planner.controller.batch_steps import BATCHES
from libra_plan.planner.controller.history import derive_again
from libra_plan.planner.controller.hysteresis import ReplanPolicy, RulePolicy, SafetyPolicy, StayPolicy
from libra_plan.planner.controller.job_queue import (
    TaskRequest,
    paused_tasks,
)
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.store import StateStore
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.document import placements_of
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.store import read_current, write_manifest
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import BatchStep, ObservedTime

EAGER = ReplanPolicy(
    rule=RulePolicy(looks_up=1, looks_down=1), stay=StayPolicy(task_s=0.0), safety=SafetyPolicy(least_steps=0)
)


class Site:
    """A folder with a plan that is not the best any more, and its record."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        a, b = scaling("a", 100.0, 0.9, 8), scaling("b", 100.0, 0.9, 8)
        old = world(8, [replace(a, min_gpus=7, max_gpus=7), replace(b, max_gpus=1)])
        write_manifest(folder, build_manifest(old, solve_problem(old).require_plan(), name="lab"))
        self.problem = replace(old, tasks=(a, replace(b, weight=9.0)))
        self.seen: tuple[ObservedTime, ...] = ()
        self.batch_steps: tuple[BatchStep, ...] = ()

    def facts(
        self, parent: Manifest, requests: tuple[TaskRequest, ...], state: LoopState
    ) -> tuple[LoopInputs, None]:
        problem, now = replace(self.problem, running=placements_of(parent)), at(self.number)
        window = well(problem, now, seen=self.seen, batch_steps=self.batch_steps)
        return LoopInputs(problem, EAGER, now, window, paused_tasks(requests)), None

    def look(self, store: StateStore, **options: object) -> replan.Replanned:
        self.number += 1
        return replan.look(self.folder, store, self.facts, **options)

    @property
    def generation(self) -> int:
        manifest = read_current(self.folder).manifest
        assert manifest is not None
        return manifest.metadata.generation


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore.open(tmp_path / "replan.db")


def test_a_change_is_written_and_recorded(site: Site, store: StateStore) -> None:
    """The next generation lies in the folder, and the record says from which look it came."""
    report = site.look(store)
    assert report.outcome == "applied"
    assert site.generation == 2
    (row,) = store.looks()
    current = read_current(site.folder).manifest
    assert current is not None
    assert (row.outcome, row.manifest) == ("applied", current.metadata.digest)
    assert site.look(store).outcome == "kept"


def test_a_dry_run_decides_and_applies_nothing(site: Site, store: StateStore) -> None:
    """The first week: what it would do is recorded, look after look, and the plan stays."""
    reports = [site.look(store, dry_run=True) for _ in range(3)]
    assert [report.outcome for report in reports] == ["dry-run"] * 3
    assert site.generation == 1
    assert all(each.same for each in derive_again(store))


@pytest.mark.parametrize("point", ["before-record", "after-record", "after-manifest"])
def test_a_run_cut_off_anywhere_is_finished_by_the_next(
    site: Site, store: StateStore, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Before the record nothing was decided; after it the decision is carried out, once."""

    class Killed(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Killed

    if point == "before-record":
        monkeypatch.setattr(StateStore, "record", dies)
    elif point == "after-record":
        monkeypatch.setattr(replan, "write_manifest", dies)
    else:
        monkeypatch.setattr(StateStore, "settle", dies)
    with pytest.raises(Killed):
        site.look(store)
    monkeypatch.undo()
    assert site.generation == (2 if point == "after-manifest" else 1)
    site.look(store)
    assert site.generation == 2
    assert [row.outcome for row in store.looks()].count("applied") == 1
    assert store.pending() == []
    assert all(each.same for each in derive_again(store))


@pytest.mark.parametrize("cut_off", [False, True])
def test_batch_steps_are_written_beside_the_plan(
    site: Site, store: StateStore, monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    """A training loop reads what was decided for, also when the run was killed before it was written."""
    step = BatchStep("a", "train", "micro_batch_tokens", 8192.0, 16384.0, 0.2)
    site.batch_steps = (step,)

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    if cut_off:
        monkeypatch.setattr(replan, "keep_steps", dies)
        with pytest.raises(Killed):
            site.look(store)
        monkeypatch.undo()
        replan.recover(site.folder, store)
    else:
        assert site.look(store).decision.rung.value == "step-batches"
    (told,) = json.loads((site.folder / BATCHES).read_text())
    assert (told["role"], told["after"]) == ("train", 16384.0)
    assert site.generation == 1


def test_a_plan_that_somebody_else_wrote_is_not_written_over(
    site: Site, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`solve --out` came in between: the decision that was cut off is superseded, not forced."""

    class Killed(BaseException):
        pass

    def dies(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(replan, "write_manifest", dies)
    with pytest.raises(Killed):
        site.look(store)
    monkeypatch.undo()
    parent = read_current(site.folder).manifest
    other: Problem = replace(site.problem, input_digests={"other": "x"})
    write_manifest(
        site.folder, build_manifest(other, solve_problem(other).require_plan(), name="lab", parent=parent)
    )
    notes: list[str] = []
    replan.recover(site.folder, store, notes.append)
    assert "another plan" in notes[0]
    assert store.looks()[0].outcome == "superseded"


@pytest.mark.slow
def test_kill_9_at_many_points(tmp_path: Path) -> None:
    """Killed at 16 moments spread over a look: never a damaged state, never half a plan, nothing lost."""
    bench = Path(__file__).parents[3] / "benchmarks" / "replan.py"
    done = subprocess.run(  # a program of its own: this one has threads, and may not fork
        [sys.executable, str(bench), "--only", "kill", "--kills", "16"],
        env=environment(TMPDIR=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "0 corrupt states, 0 lost decisions" in done.stdout
    counts = re.search(r"(\d+) of (\d+) recorded looks replay", done.stdout)
    assert counts is not None
    assert counts[1] == counts[2] != "0"


def test_what_came_of_a_change_is_noted(site: Site, store: StateStore) -> None:
    """Predicted against realised: the look after a change is compared with what it promised."""
    first = site.look(store)
    assert first.decision.plan is not None
    promised = {task.task: task.roles[0].choice.option.time_s.value for task in first.decision.plan.running}
    site.seen = (ObservedTime("b", "train", promised["b"] * 1.1),)
    site.look(store)
    (came,) = store.outcomes(first.number)
    assert (came.task, came.predicted_s) == ("b", promised["b"])
    assert came.realised_s == pytest.approx(1.1 * promised["b"])


def test_without_a_plan_there_is_nothing_to_look_after(tmp_path: Path, store: StateStore) -> None:
    """The message says how to make one."""
    site = Site.__new__(Site)
    site.folder, site.number = tmp_path / "empty", 0
    site.folder.mkdir()
    with pytest.raises(ManifestError, match="solve"):
        site.look(store)


def test_the_best_plan_is_kept_by_the_runner(tmp_path: Path) -> None:
    """A folder with the best plan: the manifest's bytes stay as they are."""
    problem = running_best(world(4, [scaling("a", 100.0, 0.7, 4)]))
    bare = replace(problem, running=())
    write_manifest(tmp_path, build_manifest(bare, solve_problem(bare).require_plan(), name="lab"))
    before = (tmp_path / "manifest.json").read_bytes()
    store = StateStore.open(tmp_path / "replan.db")

    def facts(parent: Manifest, requests: object, state: LoopState) -> tuple[LoopInputs, None]:
        now = replace(problem, running=placements_of(parent))
        return LoopInputs(now, EAGER, at(0), well(now, at(0))), None

    assert replan.look(tmp_path, store, facts).outcome == "kept"
    assert (tmp_path / "manifest.json").read_bytes() == before
