"""A supervisor has a lock, hears signals, dies, and meets a system that refuses: nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from handover_cases import NEW, OLD, TRAINER, begin, kinds, move
from live import wait_for

from libra_plan.errors import InputError, LaunchError, LockedError
from libra_plan.planner.launchers.document import manifest_to_json, read_manifest
from libra_plan.planner.launchers.store import lock_folder
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime import processes
from libra_plan.planner.runtime.apply import apply, resume, stop
from libra_plan.planner.runtime.checkpoints import marks_of
from libra_plan.planner.runtime.launch import launch
from libra_plan.planner.runtime.processes import START_MARK
from libra_plan.profiles.switch_costs import STORE

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_folder_in_use_is_refused_and_a_lock_dies_with_its_holder(lab):
    """A077: two supervisors would act on each other's processes; a dead one must not lock them out."""
    manifest = lab.manifest(OLD)
    lab.run.mkdir()
    with lock_folder(lab.run), pytest.raises(LockedError):
        move(lab, manifest)
    holder = (
        "import os, sys; from pathlib import Path\n"
        "from libra_plan.planner.launchers.store import lock_folder\n"
        "with lock_folder(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    environment = dict(lab.settings().environment)
    done = subprocess.run([sys.executable, "-c", holder, str(lab.run)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert move(lab, lab.manifest({"a": {"rollout": [0]}})).outcome == "new"


def test_launch_in_the_foreground_does_not_join_what_is_supervised(lab):
    """Its roles would take the same GPUs, and the record of neither would be whole."""
    manifest = begin(lab, {"a": {"rollout": [0]}})
    with pytest.raises(LaunchError, match="under a supervisor"):
        launch(manifest, folder=lab.run, dry_run=False, check_gpus=lab.check_gpus)
    with pytest.raises(LaunchError, match="run already"):
        apply(manifest, folder=lab.run, dry_run=False, first=True, settings=lab.settings())


def test_only_what_it_started_is_touched(lab):
    """Another run's process of a task of the same name goes on, and so does one without a mark."""
    marks = {"LIBRA_PLAN_TASK": "a", START_MARK: "1"}
    environment = {**lab.settings().environment, **marks}
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    others = [
        subprocess.Popen(words, env={**environment, processes.MARK: "another"}),
        subprocess.Popen(words, env=environment),
    ]
    try:
        begin(lab, {"a": {"rollout": [0]}})
        stop(folder=lab.run, dry_run=False, settings=lab.settings(force=True))
        assert [process.poll() for process in others] == [None, None]
    finally:
        for process in others:
            process.kill()
            process.wait()


def test_a_signal_calls_the_hand_over_off(lab):
    """Ctrl-C in the middle must not leave half a move."""
    old = begin(lab, OLD)

    def heard(line):
        if line == "resize:b: ask for a checkpoint":
            os.kill(os.getpid(), signal.SIGTERM)

    report = move(lab, lab.manifest(NEW, old), notes=heard)
    assert (report.outcome, report.reason) == ("old", "interrupted by SIGTERM")
    assert lab.faults() == []
    assert lab.runs(old) == []


def test_asked_twice_it_leaves_at_once_and_the_next_one_goes_on(lab):
    """Who presses Ctrl-C again wants the prompt; the journal keeps the rest."""
    old = begin(lab, OLD)
    new = lab.manifest(NEW, old)

    def heard(line):
        if line == "resize:b: ask for a checkpoint":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    assert move(lab, new, notes=heard).outcome == "left"
    assert move(lab, new).outcome == "new"
    assert lab.faults() == []
    assert lab.runs(new) == []


def test_a_role_that_was_being_started_when_the_supervisor_died_never_runs(lab):
    """Between its process and its record there is no moment in which it could run unnoticed."""
    script = (
        "import os, signal, sys, pathlib; sys.path.insert(0, sys.argv[2])\n"
        "from handover_cases import Case\n"
        "from libra_plan.planner.runtime.journal import RunJournal\n"
        "from libra_plan.planner.runtime.apply import apply\n"
        "from libra_plan.planner.launchers.document import read_manifest\n"
        "append, folder = RunJournal.append, pathlib.Path(sys.argv[1])\n"
        "def doomed(self, record):\n"
        "    if type(record).__name__ == 'Started': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return append(self, record)\n"
        "RunJournal.append = doomed\n"
        "lab = Case(folder, (0, 0))\n"
        "apply(read_manifest(folder / 'm.json'), folder=lab.run, dry_run=False, settings=lab.settings())\n"
    )
    manifest = lab.manifest({"a": {"rollout": [0]}})
    (lab.folder / "m.json").write_text(manifest_to_json(manifest))
    done = subprocess.run(
        [sys.executable, "-c", script, str(lab.folder), str(TRAINER.parent)],
        env=dict(lab.settings().environment),
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert kinds(lab)[-1] is r.Intent
    wait_for(lambda: not processes.marked_processes(lab.state().launch_id))
    time.sleep(0.1)
    assert lab.events() == []
    assert resume(folder=lab.run, dry_run=False, settings=lab.settings()).outcome == "new"
    assert r.Never in kinds(lab)
    assert lab.runs(manifest) == []


def test_nothing_to_resume_is_told(lab):
    """The way out of a typing error is to name what was meant."""
    with pytest.raises(InputError, match="no hand-over is unfinished here"):
        resume(folder=lab.run, settings=lab.settings())


def test_a_request_that_cannot_be_written_calls_the_hand_over_off(lab):
    """A checkpoint folder that is full or read-only must not leave the supervisor dead in the middle."""
    old = begin(lab, OLD)
    (lab.folder / "checkpoints" / "a" / "request.json").mkdir(parents=True)
    asked = [Path(one.progress) for one in lab.state().processes]
    wait_for(lambda: all("polls" in marks_of(path) for path in asked))
    report = move(lab, lab.manifest(NEW, old), checkpoint_wait_s=0.2, start_window_s=60.0)
    assert report.outcome == "old"
    assert "it could not be asked: Is a directory" in report.reason
    assert lab.faults() == []
    assert lab.runs(old) == []


def test_a_role_that_no_process_can_be_made_for_is_a_failed_step(lab):
    """Logs that cannot be written ended the supervisor between two roles, and nothing was undone."""
    old = begin(lab, OLD)
    (lab.run / "logs" / "c").write_text("not a folder")
    new = lab.manifest({"a": {"actor": [0]}, "b": {"actor": [2]}, "c": {"actor": [1]}}, old)
    report = move(lab, new)
    assert report.outcome == "old"
    assert "c/actor cannot be started; got [Errno 20] Not a directory" in report.reason
    assert lab.faults() == []
    assert lab.runs(old) == []


def test_costs_that_cannot_be_kept_are_told_when_all_is_done(lab):
    """A full disk after the last step is no reason to call a hand-over failed."""
    heard = []
    (lab.folder / "run").mkdir()
    (lab.run / STORE).mkdir()
    manifest = lab.manifest(OLD)
    report = apply(
        manifest, folder=lab.run, dry_run=False, first=True, settings=lab.settings(notes=heard.append)
    )
    assert report.outcome == "new"
    assert any("what it cost is not kept" in line for line in heard)
    assert read_manifest(lab.run / "manifest.json") == manifest


def test_stopping_where_nothing_was_started_makes_nothing(lab):
    """A mistyped folder must not come into being."""
    report = stop(folder=lab.run, dry_run=False, settings=lab.settings())
    assert report.steps == ()
    assert not lab.run.exists()
    with pytest.raises(InputError, match="no hand-over is unfinished"):
        resume(folder=lab.run, dry_run=False, settings=lab.settings())
    assert not lab.run.exists()
