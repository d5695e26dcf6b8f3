"""What is refused before anything is touched."""

from __future__ import annotations

import plans
import pytest
from handover_cases import Case

from libra_plan.errors import LaunchError
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.runtime import checks
from libra_plan.planner.runtime.moves import Goal
from libra_plan.planner.runtime.state import Process, RunState
from libra_plan.planner.runtime.worker import save_complete, step_folder


@pytest.fixture
def lab(tmp_path):
    return Case(tmp_path, (24000, 24100))


def goal_of(manifest, node="n0"):
    return Goal.of(manifest, agents_of(manifest), node)


def running(manifest, node="n0"):
    """Return the state of a host on which all of a manifest runs."""
    goal = goal_of(manifest, node)
    return RunState(
        launch_id="1",
        node=node,
        working_folder="/",
        running=manifest.metadata.digest,
        processes=tuple(
            Process(
                start=start,
                task=agent.task,
                role=agent.role,
                generation=goal.generations[agent.task],
                gpus=tuple(f"{node}:{gpu}" for gpu in agent.gpus),
                trains=(agent.task, agent.role) in goal.trains,
                world_size=agent.world_size,
                lifecycle=goal.lifecycles[agent.task],
                log="",
                progress="",
                turn=1,
                pid=start,
                start_time=0.0,
                host="here",
                established=True,
            )
            for start, agent in enumerate(goal.agents.values())
        ),
    )


def refuse(old, new, force=False, node="n0", state=None):
    state = running(old, node) if state is None else state
    checks.refuse_unsafe(state, old, new, goal_of(new, node), new.spec.transitions, node, force=force)


def test_a_task_that_trains_without_checkpoints_is_not_moved(lab):
    """A033: preempted after six hours, it would begin at step 1."""
    old = lab.manifest({"a": {"actor": [0]}}, checkpoints=False)
    new = lab.manifest({"a": {"actor": [1]}}, old, checkpoints=False)
    with pytest.raises(LaunchError) as caught:
        refuse(old, new)
    assert "a/actor trains and has no checkpoint_dir" in caught.value.got
    refuse(old, new, force=True)


def test_a_task_without_state_needs_no_checkpoint(lab):
    """An evaluation or a rollout is started again as it was."""
    old = lab.manifest({"a": {"rollout": [0]}}, checkpoints=False)
    refuse(old, lab.manifest({"a": {"rollout": [1]}}, old, checkpoints=False))


def test_another_number_of_training_ranks_needs_a_declared_ability(lab):
    """A034: a checkpoint of 8 shards will not load on 16 unless the loader can reshard."""
    old = lab.manifest({"a": {"actor": [0, 1]}}, reshardable=False)
    new = lab.manifest({"a": {"actor": [0, 1, 2]}}, old, reshardable=False)
    with pytest.raises(LaunchError) as caught:
        refuse(old, new, force=True)
    assert "a/actor has a checkpoint of 2 ranks and would get 3" in caught.value.got
    assert "reshardable: true" in caught.value.got
    refuse(old, lab.manifest({"a": {"actor": [0, 1, 2]}}, old, reshardable=True))
    refuse(old, lab.manifest({"a": {"actor": [3, 4]}}, old, reshardable=False))


def test_a_checkpoint_that_lies_there_counts_too(lab, tmp_path):
    """A034: a task that was queued meanwhile comes back with other ranks."""
    folder = tmp_path / "checkpoints" / "a"
    (step_folder(5, folder) / "f").write_text("x")
    save_complete(5, ["f"], folder, world_size=2)
    old = lab.manifest({"b": {"actor": [0]}}, reshardable=False)
    back = lab.manifest({"b": {"actor": [0]}, "a": {"actor": [1]}}, old, reshardable=False)
    with pytest.raises(LaunchError, match="a checkpoint of 2 ranks and would get 1"):
        refuse(old, back)
    refuse(old, lab.manifest({"b": {"actor": [0]}, "a": {"actor": [1, 2]}}, old, reshardable=False))


def test_one_host_does_not_move_what_also_runs_elsewhere():
    """It could not prove that the ranks on the other node are gone."""
    where = plans.cluster(2, 2)
    wide = plans.running("wide", [plans.role("actor", [["n0:0"], ["n1:0"]])])
    old = plans.manifest_of(where, wide)
    new = plans.manifest_of(
        where, plans.running("wide", [plans.role("actor", [["n0:1"], ["n1:0"]])]), parent=old
    )
    with pytest.raises(LaunchError, match="wide also has ranks on n1"):
        refuse(old, new)


def test_a_task_that_only_starts_may_have_ranks_elsewhere():
    """Nothing of it has to be gone first, and its ranks wait for each other."""
    where = plans.cluster(2, 2)
    old = plans.manifest_of(where, plans.running("one", [plans.role("actor", [["n0:1"]])]))
    new = plans.manifest_of(
        where,
        plans.running("one", [plans.role("actor", [["n0:1"]])]),
        plans.running("wide", [plans.role("actor", [["n0:0"], ["n1:0"]])]),
        parent=old,
    )
    state = running(old)
    steps = [step for step in new.spec.transitions if step.task == "wide"]
    checks.refuse_unsafe(state, old, new, goal_of(new), steps, "n0", force=False)


def test_an_older_manifest_is_not_applied(lab):
    """Generations grow: ranks of two plans must not meet under one id."""
    first = lab.manifest({"a": {"actor": [0]}})
    second = lab.manifest({"a": {"actor": [1]}}, first)
    checks.refuse_stale(running(first), first, second, first=False)
    checks.refuse_stale(running(second), second, second, first=False)
    with pytest.raises(LaunchError, match="no later one"):
        checks.refuse_stale(running(second), second, first, first=False)
    with pytest.raises(LaunchError, match="run already"):
        checks.refuse_stale(running(first), first, second, first=True)


def test_an_open_hand_over_is_finished_first(lab):
    """What runs in its middle is neither plan."""
    checks.refuse_open(RunState())
    with pytest.raises(LaunchError) as caught:
        checks.refuse_open(RunState(open=True, target="sha256:0123456789abcdef", stuck="GPU busy"))
    assert caught.value.got == "one to sha256:0123456789ab (GPU busy)"
    assert "--back" in caught.value.way_out


def test_a_manifest_of_another_line_keeps_no_task_as_it_never_ran(lab):
    """Two plans of one parent both call a task's first start generation 2, whatever it runs."""
    first = lab.manifest({"a": {"actor": [0]}})
    ours = lab.manifest({"a": {"actor": [0]}, "b": {"actor": [3]}}, first)
    theirs = lab.manifest({"a": {"actor": [0]}, "b": {"actor": [3]}}, first, words={"b": ["other"]})
    later = lab.manifest({"a": {"actor": [1]}, "b": {"actor": [3]}}, theirs, words={"b": ["other"]})
    with pytest.raises(LaunchError, match="does not come from what runs") as caught:
        checks.refuse_stale(running(ours), ours, later, first=False)
    assert caught.value.got == "b"
    checks.refuse_stale(running(theirs), theirs, later, first=False)
    skipped = lab.manifest({"a": {"actor": [2]}, "b": {"actor": [3]}}, later, words={"b": ["other"]})
    checks.refuse_stale(running(theirs), theirs, skipped, first=False)


def test_roles_of_another_host_are_not_taken_for_gone(lab):
    """From a login node that shares the folder every role looks dead, and would be started twice."""
    state = running(lab.manifest({"a": {"actor": [0]}}))
    checks.refuse_elsewhere(state, "here", force=False)
    checks.refuse_elsewhere(RunState(), "there", force=False)
    with pytest.raises(LaunchError, match="on another host") as caught:
        checks.refuse_elsewhere(state, "there", force=False)
    assert caught.value.allowed == "here"
    checks.refuse_elsewhere(state, "there", force=True)
