"""Real hand-overs of tiny training loops: what is lost, what is left running, and what is undone."""

from __future__ import annotations

import fcntl
import socket
import threading
from dataclasses import replace

import msgspec
import pytest
from handover_cases import NEW, OLD, begin, kinds, move
from live import wait_for

from libra_plan.errors import LaunchError
from libra_plan.planner.launchers.document import read_manifest, seal
from libra_plan.planner.launchers.manifest import JointEntry
from libra_plan.planner.runtime import gpus, processes
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.apply import apply, resume, stop
from libra_plan.planner.runtime.gpus import GpuReport, GpuUse
from libra_plan.planner.runtime.journal import read_journal
from libra_plan.planner.runtime.worker import latest_complete
from libra_plan.profiles.switch_costs import STORE, read_switch_costs

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_dry_run_is_the_default_and_touches_nothing(lab):
    """Looking must be safe, before the first start and between plans."""
    old = lab.manifest(OLD)
    report = apply(old, folder=lab.run, settings=lab.settings())
    assert [step.id for step in report.steps] == ["start:b", "start:a"]
    assert report.outcome is None
    assert not lab.run.exists()
    begin(lab, OLD)
    entries = read_journal(lab.run)
    report = apply(lab.manifest(NEW, old), folder=lab.run, settings=lab.settings())
    assert [(step.id, step.after) for step in report.steps] == [("resize:a", ()), ("resize:b", ("resize:a",))]
    assert read_journal(lab.run) == entries
    assert lab.runs(old) == []


def test_tasks_save_stop_and_go_on_elsewhere(lab):
    """A031, A032: drained and saved first; growth comes after the shrink is proven; nothing is lost."""
    heard = []
    old = begin(lab, OLD)
    new = lab.manifest(NEW, old)
    report = move(lab, new, notes=heard.append)
    assert (report.outcome, report.running) == ("new", new.metadata.digest)
    assert lab.faults() == []
    assert lab.runs(new) == []
    order = [line for line in heard if line.startswith("resize")]
    assert order.index("resize:a: wait until it works") < order.index("resize:b: ask for a checkpoint")
    begun = [event for event in lab.events() if event["event"] == "begin"]
    assert [event["step"] > 0 for event in begun] == [False, False, True, True]
    assert {event["generation"] for event in begun[2:]} == {2}
    assert not list(lab.folder.glob("checkpoints/*/request.json"))
    assert read_manifest(lab.run / "manifest.json") == new


def test_what_a_move_costs_is_recorded(lab, tmp_path):
    """The planner prices the next moves from it."""
    old = begin(lab, OLD)
    store = tmp_path / "profiles" / STORE
    report = move(lab, lab.manifest(NEW, old), profiles=store.parent)
    records = read_switch_costs(lab.run / STORE)
    assert [one.action for one in records] == ["start", "start", "resize", "resize"]
    assert tuple(records[2:]) == report.costs
    assert read_switch_costs(store) == records[2:]
    for one in report.costs:
        assert one.checkpoint_s == pytest.approx(one.drain_s + one.save_s)
        assert one.lost_s > one.save_s + one.stop_s > 0.0
        assert one.roles[0].load_s is not None
    assert records[0].lost_s is None


def test_a_task_that_stays_is_not_touched(lab):
    """Only what changes pays."""
    old = begin(lab, OLD)
    before = {one.task: one.pid for one in lab.state().processes}
    new = lab.manifest({"a": {"actor": [0, 1]}, "b": {"actor": [3]}}, old)
    assert move(lab, new).outcome == "new"
    after = {one.task: one.pid for one in lab.state().processes}
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert move(lab, new).steps[0].action == "keep"
    assert {one.task: one.pid for one in lab.state().processes} == after


def test_the_steps_say_what_starts_again_when_a_gpu_is_lost(lab):
    """A036: the survivors keep running, and the user reads before who restarts from its checkpoint."""
    old = begin(lab, {"a": {"actor": [0]}, "b": {"actor": [5]}})
    without = replace(lab, gpus=5).manifest({"a": {"actor": [0]}, "b": {"actor": [1]}}, old)
    report = apply(without, folder=lab.run, settings=lab.settings())
    assert [step.id for step in report.steps] == ["move:b", "keep:a"]


def test_a_new_generation_that_dies_brings_the_old_one_back(lab):
    """A031: the first task has shrunk already; it must get its GPU back."""
    old = begin(lab, OLD)
    report = move(lab, lab.manifest(NEW, old, words={"b": ["dies"]}))
    assert (report.outcome, report.running) == ("old", old.metadata.digest)
    assert (
        "resize:b: it ended as soon as it was started: b/actor: ValueError: no such model (see "
        in report.reason
    )
    assert lab.faults() == []
    assert lab.runs(old) == []
    assert read_manifest(lab.run / "manifest.json") == old
    assert move(lab, lab.manifest(NEW, old)).outcome == "new"
    assert lab.faults() == []


def test_a_first_start_that_fails_leaves_nothing(lab):
    """Half a plan would hold GPUs for nothing."""
    manifest = lab.manifest(OLD, words={"a": ["dies"]})
    report = apply(manifest, folder=lab.run, dry_run=False, first=True, settings=lab.settings())
    assert (report.outcome, report.running) == ("old", None)
    assert lab.runs(None) == []
    assert processes.marked_processes(lab.state().launch_id) == []


def test_a_port_that_is_taken_brings_the_old_one_back(lab):
    """It is found when the task has been stopped: another took it in between."""
    old = begin(lab, {"a": {"actor": [0]}})
    new = lab.manifest({"a": {"actor": [1]}}, old)
    with socket.socket() as taken:
        taken.bind(("", new.spec.tasks[0].roles[0].rendezvous.port))
        taken.listen()
        report = move(lab, new)
    assert report.outcome == "old"
    assert "port" in report.reason
    assert lab.runs(old) == []


def test_a_task_that_does_not_save_is_not_stopped(lab):
    """A033: the request is withdrawn, the task goes on as it was, and the user hears of it."""
    old = begin(lab, {"a": {"actor": [0]}, "b": {"actor": [1]}})
    pids = [one.pid for one in lab.state().processes]
    (lab.folder / "deaf").touch()
    new = lab.manifest({"a": {"actor": [2]}, "b": {"actor": [1]}}, old)
    report = move(lab, new, checkpoint_wait_s=0.4, start_window_s=60.0)
    assert report.outcome == "old"
    assert "no newer complete checkpoint" in report.reason
    assert [one.pid for one in lab.state().processes] == pids
    assert lab.runs(old) == []
    assert not list(lab.folder.glob("checkpoints/*/request.json"))


def test_a_task_that_has_saved_when_the_move_is_called_off_goes_on(lab):
    """It waits for its release, and must not wait for ever."""
    old = begin(lab, {"a": {"actor": [0]}, "b": {"rollout": [1]}})
    new = lab.manifest({"a": {"actor": [2]}, "b": {"rollout": [1]}}, old)

    def heard(line):
        if line.endswith("is saved"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        move(lab, new, notes=heard)
    assert lab.state().open
    assert resume(folder=lab.run, back=True, dry_run=False, settings=lab.settings()).outcome == "old"
    saved = latest_complete(lab.folder / "checkpoints" / "a").step
    wait_for(lambda: latest_complete(lab.folder / "checkpoints" / "a").step > saved)
    assert lab.runs(old) == []


def test_without_an_answer_force_stops_it_all_the_same(lab):
    """The user decides that the steps since the last checkpoint are worth less than the GPUs."""
    old = begin(lab, {"a": {"actor": [0]}})
    (lab.folder / "deaf").touch()
    new = lab.manifest({"a": {"actor": [1]}}, old)
    report = move(lab, new, force=True, checkpoint_wait_s=0.1, start_window_s=60.0, ready_wait_s=90.0)
    assert report.outcome == "new"
    assert lab.runs(new) == []


IGNORES = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "import libra_plan; libra_plan.report('warm'); time.sleep(120)\n"
)


def stubborn(lab, gpu, parent=None):
    script = lab.folder / "stubborn.py"
    script.write_text(IGNORES)
    manifest = lab.manifest({"a": {"rollout": [gpu]}}, parent, grace_s=0.3)
    return _with_command(manifest, str(script))


def _with_command(manifest, script):
    tasks = tuple(
        msgspec.structs.replace(
            task, roles=tuple(msgspec.structs.replace(role, command=(script,)) for role in task.roles)
        )
        for task in manifest.spec.tasks
    )
    return seal(msgspec.structs.replace(manifest, spec=msgspec.structs.replace(manifest.spec, tasks=tasks)))


def shared(lab, gpu, parent=None):
    """Let two tasks take one GPU in turns."""
    words = {"a": ["shares"], "b": ["shares"]}
    manifest = lab.manifest({"a": {"actor": [gpu]}, "b": {"actor": [gpu + 1]}}, parent, words=words)
    first, second = manifest.spec.tasks
    taken = first.roles[0]
    (role,) = second.roles
    role = msgspec.structs.replace(
        role,
        replicas=taken.replicas,
        members=(msgspec.structs.replace(taken.members[0], port=role.members[0].port),),
    )
    tasks = tuple(
        msgspec.structs.replace(task, roles=(msgspec.structs.replace(one, share_group="share0"),))
        for task, one in ((first, taken), (second, role))
    )
    joint = JointEntry(kind="turns", tasks=("a", "b"), turns=(("a/actor",), ("b/actor",)))
    return seal(
        msgspec.structs.replace(
            manifest, spec=msgspec.structs.replace(manifest.spec, tasks=tasks, joint=(joint,))
        )
    )


def test_tasks_that_share_a_gpu_move_together(lab):
    """Neither finds its GPU free alone, before or after, and that is as planned."""
    old = shared(lab, 0)
    assert apply(old, folder=lab.run, dry_run=False, first=True, settings=lab.settings()).outcome == "new"
    new = shared(lab, 2, old)
    report = move(lab, new)
    assert report.outcome == "new", report.reason
    assert [step.id for step in report.steps] == ["stop:a", "stop:b", "start:a", "start:b"]
    assert {one.gpus for one in lab.state().processes} == {("n0:2",)}
    assert [event for event in lab.events() if event["event"] == "double"] == []
    assert [one.action for one in report.costs] == ["move", "move"]


def test_what_outlives_its_grace_is_killed_only_by_force(lab):
    """The user decides about a process that ignores its signal; nothing starts on its GPU meanwhile."""
    old = stubborn(lab, 0)
    assert apply(old, folder=lab.run, dry_run=False, first=True, settings=lab.settings()).outcome == "new"
    (process,) = lab.state().processes
    new = stubborn(lab, 1, old)
    report = move(lab, new)
    assert report.outcome == "stuck"
    assert f"pids {process.pid} outlived the grace of 0.3 s" in report.reason
    assert lab.state().processes == (process,)
    with pytest.raises(LaunchError, match="another hand-over is unfinished"):
        stop(folder=lab.run, settings=lab.settings())
    again = resume(folder=lab.run, dry_run=False, settings=lab.settings(force=True))
    assert again.outcome == "old"
    assert not processes.still_runs(process.pid, process.start_time)
    assert lab.runs(old) == []


def test_a_gpu_whose_memory_does_not_return_gets_no_new_role(lab):
    """A029: an orphan keeps 115 GiB; five restarts onto that GPU fail one after the other."""
    leaks = threading.Event()

    def check(node, gpus):
        reports = lab.check_gpus(node, gpus)
        leak = GpuReport("n0:0", GpuUse.BUSY, "115 GiB in use")
        return tuple(leak if leaks.is_set() and one.gpu == "n0:0" else one for one in reports)

    old = begin(lab, {"a": {"actor": [0]}})
    new = lab.manifest({"a": {"actor": [1]}}, old)
    leaks.set()
    waits = {"checkpoint_wait_s": 60.0, "memory_wait_s": 0.2, "start_window_s": 60.0, "ready_wait_s": 90.0}
    report = move(lab, new, check_gpus=check, **waits)
    assert report.outcome == "stuck"
    assert "the memory does not return: GPU n0:0 busy (115 GiB in use)" in report.reason
    assert processes.marked_processes(lab.state().launch_id) == []
    assert lab.state().held_by({"b"}, others=True) == {"n0:0"}
    leaks.clear()
    assert resume(folder=lab.run, dry_run=False, settings=lab.settings(check_gpus=check)).outcome == "old"
    assert lab.runs(old) == []
    assert lab.faults() == []


def test_gpus_that_nobody_can_read_are_said_to_be_unknown(lab):
    """Gone processes do not prove free memory."""
    heard = []
    old = begin(lab, {"a": {"actor": [0]}})
    new = lab.manifest({"a": {"actor": [1]}}, old)
    with pytest.raises(LaunchError, match="not known to be free"):
        move(lab, new, check_gpus=gpus.gpus_unknown)
    assert lab.runs(old) == []
    unknown = {"check_gpus": gpus.gpus_unknown, "allow_unknown_gpus": True, "notes": heard.append}
    assert move(lab, new, **unknown).outcome == "new"
    assert "a: its processes are gone; nothing reads the memory of its GPUs here" in heard
    assert [e.record.memory for e in read_journal(lab.run) if isinstance(e.record, r.Gone)] == ["unknown"]


def test_a_gpu_that_somebody_else_uses_is_refused_before_anything_stops(lab):
    """Stopping a task and starting it again for a GPU that was never free costs it minutes."""
    old = begin(lab, {"a": {"actor": [0]}})
    with (lab.folder / "gpu-1.lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LaunchError, match=r"GPU n0:1 busy \(locked\)"):
            move(lab, lab.manifest({"a": {"actor": [0, 1]}}, old))
    assert kinds(lab)[-1] is r.Finished
    assert lab.runs(old) == []


def test_stop_saves_and_leaves_nothing(lab):
    """And what was stopped can be started again from there."""
    old = begin(lab, OLD)
    report = stop(folder=lab.run, dry_run=False, settings=lab.settings())
    assert (report.outcome, report.running) == ("new", None)
    assert processes.marked_processes(lab.state().launch_id) == []
    assert not (lab.run / "manifest.json").exists()
    again = apply(old, folder=lab.run, dry_run=False, first=True, settings=lab.settings())
    assert again.outcome == "new"
    assert lab.faults() == []
    assert stop(folder=lab.run, settings=lab.settings()).steps
