"""What a journal says, entry by entry."""

from __future__ import annotations

import plans
import pytest

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.manifest import Lifecycle, Transition
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.state import keep_manifest, read_kept_manifest, state_of

LIFECYCLE = Lifecycle(stop_signal="SIGTERM", grace_s=1.0, checkpoint_dir="/c")
MOVE = Transition(id="move:t", task="t", action="move", gpus_before=1, gpus_after=1, after=())
ORDERED = r.Ordered(task="t", request="q", generation=1, folder="/c", after_step=3)


def intent(start, gpus=("n0:0",), task="t"):
    return r.Intent(
        start=start,
        task=task,
        role="actor",
        generation=1,
        gpus=gpus,
        trains=True,
        world_size=1,
        lifecycle=LIFECYCLE,
        log="log",
        progress="progress",
    )


def begun(*steps, target="sha256:new"):
    return r.Begun(target=target, generation=1, steps=steps, force=False)


def told(*records):
    opened = r.Opened(launch_id="run", node="n0", working_folder="/w")
    return state_of(
        r.Entry(number=at, at="", boot_s=float(at), record=one) for at, one in enumerate((opened, *records))
    )


def running(*more):
    """Run one role that a first hand-over started, and go on with more records."""
    started = r.Started(start=1, pid=7, start_time=5.0, host="here")
    first = Transition(id="start:t", task="t", action="start", gpus_before=0, gpus_after=1, after=())
    through = r.Through(step="start:t")
    finished = r.Finished(running="sha256:old", back=False)
    return told(begun(first), intent(1), started, r.Released(start=1), through, finished, *more)


def test_an_empty_journal_says_that_nothing_runs():
    """A folder that was never used must not look like a run."""
    state = state_of([])
    assert (state.launch_id, state.running, state.open, state.processes) == ("", None, False, ())


def test_a_process_is_known_from_its_intent_on():
    """A supervisor that dies between the two records must still be looked for."""
    (process,) = told(begun(MOVE), intent(1)).processes
    assert (process.start, process.pid, process.released_boot_s) == (1, None, None)
    (process,) = running().processes
    assert (process.pid, process.start_time, process.host) == (7, 5.0, "here")
    assert process.released_boot_s == 4.0
    assert process.established


def test_a_start_that_never_was_holds_nothing():
    """Its GPUs can be given to the next start."""
    state = told(begun(MOVE), intent(1), r.Never(start=1))
    assert state.processes == ()
    assert state.starts == 1  # its number is not given again


def test_gpus_are_held_until_the_task_is_proven_gone():
    """A stop signal that was sent proves nothing."""
    state = running(begun(MOVE), r.Stopping(task="t"))
    assert state.held_by({"t"}) == {"n0:0"}
    assert state.held_by({"t"}, others=True) == frozenset()
    gone = running(begun(MOVE), r.Stopping(task="t"), r.Gone(task="t", memory="free"))
    assert gone.held_by({"t"}) == frozenset()
    assert not gone.stop_of("t").stopping


def test_marks_of_a_stop_outlive_its_supervisor_and_not_the_order():
    """A checkpoint that answered an older request is none for the new one."""
    saved = r.Saved(task="t", step=4, save_s=0.5)
    marks = running(begun(MOVE), ORDERED, saved, r.Stopping(task="t"), r.Killing(task="t")).stop_of("t")
    assert (marks.ordered, marks.saved, marks.stopping, marks.killing) == (ORDERED, saved, True, True)
    assert running(begun(MOVE), ORDERED, saved, ORDERED).stop_of("t").saved is None
    assert running(begun(MOVE), ORDERED, r.Withdrawn(task="t")).stop_of("t").ordered is None


def test_the_way_back_leads_to_what_ran_before():
    """Whoever continues must not go on towards a plan that failed."""
    failed = r.StepFailed(step="move:t", reason="no")
    there = running(begun(MOVE), failed)
    assert (there.wanted, there.failed) == ("sha256:new", {"move:t": "no"})
    back = running(begun(MOVE), failed, r.Back(reason="no", steps=(), force=False))
    assert (back.wanted, back.back, back.failed, back.turn) == ("sha256:old", True, {}, 3)
    assert back.first_turn == 2
    over = running(
        begun(MOVE),
        r.Back(reason="no", steps=(), force=False),
        r.Finished(running="sha256:old", back=True),
    )
    assert (over.open, over.back, over.running, over.steps) == (False, False, "sha256:old", ())


def test_arriving_and_leaving_are_told_by_the_turn():
    """The same task may have processes of both plans on record at once."""
    state = running(begun(MOVE), intent(2, ("n0:1",)))
    assert [one.start for one in state.leaving("t")] == [1]
    assert [one.start for one in state.arriving("t")] == [2]


def test_times_of_a_hand_over_are_those_of_the_last_one():
    """Costs of moves are their differences."""
    state = running(begun(MOVE), ORDERED, r.Saved(task="t", step=4, save_s=0.5))
    assert state.timeline == {"t": {"ordered": 8.0, "saved": 9.0}}
    assert state.saves["t"].step == 4
    assert running(begun(MOVE), ORDERED, begun(MOVE)).timeline == {}


def test_a_kept_manifest_is_found_by_its_digest_and_checked(tmp_path):
    """What runs is stopped by the lifecycles in it, so a changed file must not be used."""
    manifest = plans.single_node()
    keep_manifest(tmp_path, manifest)
    digest = manifest.metadata.digest
    assert read_kept_manifest(tmp_path, digest) == manifest
    assert read_kept_manifest(tmp_path, None) is None
    (path,) = (tmp_path / "plans").iterdir()
    path.write_text(path.read_text("utf-8").replace('"graceS": 120.0', '"graceS": 1.0'), "utf-8")
    with pytest.raises(ManifestError, match="changed after it was written"):
        read_kept_manifest(tmp_path, digest)
