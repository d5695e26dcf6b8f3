"""Observations follow from records: those of the current placement count, and unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops import scaling, world
from telemetry_cases import gpu, sample

from libra_plan.models.parallelism import Layout
from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.problem import IncumbentRole, IncumbentTask
from libra_plan.planner.telemetry.observations import (
    CheckpointAge,
    Event,
    EventKind,
    Observations,
    ObservedTime,
    RoleLoad,
    TaskProgress,
)
from libra_plan.planner.telemetry.observe import PRESSURE, RECENT_S, observe
from libra_plan.planner.telemetry.sample import GpuState
from libra_plan.planner.telemetry.work_windows import WorkWindow

NOW_S = 1_700_000_000.0


def record(ago_s, length_s=10.0, *, task="a", role="train", **more):
    """Return a record that ended so many seconds ago."""
    known = {"source": "p0", "clock": "boot", "steps": 2.0, **more}
    return WorkWindow(
        start_s=5000.0 - ago_s - length_s,
        end_s=5000.0 - ago_s,
        utc_s=NOW_S - ago_s,
        task=task,
        role=role,
        **known,
    )


@pytest.fixture
def problem():
    """Two tasks of one role each, on two GPUs whose UUIDs are known; `a` runs on the first."""
    found = world(2, [scaling("a", 8.0, 0.9, 2), scaling("b", 8.0, 0.9, 2)])
    nodes = tuple(
        replace(node, gpus=tuple(replace(each, uuid=f"GPU-{each.id.index}") for each in node.gpus))
        for node in found.cluster
    )
    place = nodes[0].gpus[0].id
    held = IncumbentRole("train", Layout(), ((place,),), "train")
    return replace(found, cluster=Cluster("lab", nodes), running=(IncumbentTask("a", (held,)),))


def seconds(found):
    return {(each.task, each.role): each.seconds for each in found.seen}


def steps(found):
    return {each.task: each.steps for each in found.progress}


def test_nothing_at_all_is_none(problem):
    """No telemetry is another thing than telemetry of nothing."""
    assert observe([], problem, NOW_S) is None


def test_seconds_per_step_leave_waiting_out(problem):
    """Two windows of 10 s with 2 steps each, of which 4 s waited: 3 s a step, 4 steps."""
    found = observe([record(20, waiting_s=4.0), record(10, waiting_s=4.0)], problem, NOW_S)
    assert seconds(found) == {("a", "train"): 3.0}
    assert steps(found) == {"a": 4.0}
    assert found.until_s == NOW_S - 10


@pytest.mark.parametrize(
    ("placed_ago_s", "counted"),
    [(20.0, 1), (19.9, 0), (15.0, 0), (10.0, 0), (9.0, 0), (20.1, 1)],
)
def test_a_record_that_straddles_a_move_is_left_out(problem, placed_ago_s, counted):
    """It mixes the placement before with the one after; only what began after the move counts."""
    found = observe([record(10)], problem, NOW_S, placed_s={"a": NOW_S - placed_ago_s})
    assert len(found.seen) == counted
    assert steps(found) == {"a": 2.0 * counted}


def test_a_straddling_record_does_not_bend_the_mean_of_the_later_ones(problem):
    """Before the move a step took 5 s, after it 1 s: 1 s is what is observed."""
    before, after = record(10, steps=2.0), record(0, steps=10.0)
    found = observe([before, after], problem, NOW_S, placed_s={"a": NOW_S - 15.0})
    assert seconds(found) == {("a", "train"): 1.0}
    assert steps(found) == {"a": 10.0}


def test_a_move_of_one_task_leaves_records_of_others_alone(problem):
    """Placements change task by task."""
    found = observe([record(10), record(10, task="b")], problem, NOW_S, placed_s={"a": NOW_S - 15.0})
    assert set(seconds(found)) == {("b", "train")}


def test_a_record_without_a_date_counts(problem):
    """When it began is unknown, and it is no reason to lose it."""
    undated = WorkWindow(start_s=0.0, end_s=10.0, task="a", role="train", steps=2.0)
    assert seconds(observe([undated], problem, NOW_S, placed_s={"a": NOW_S})) == {("a", "train"): 5.0}


def test_records_of_an_earlier_generation_do_not_count(problem):
    """A process of the plan before still writes its last line."""
    records = [record(10, generation=1), record(10, generation=2, steps=5.0), record(10, task="b")]
    found = observe(records, problem, NOW_S, generations={"a": 2})
    assert seconds(found) == {("a", "train"): 2.0, ("b", "train"): 5.0}


def test_only_the_lowest_rank_counts(problem):
    """Ranks take their steps together: four ranks are not four times the steps."""
    records = [record(10, dp_rank=rank, source=f"p{rank}", steps=2.0 + rank) for rank in (3, 1, 2)]
    assert steps(observe(records, problem, NOW_S)) == {"a": 3.0}


def test_passes_of_an_engine_are_no_steps_of_a_task(problem):
    """A record with batch and length counts passes; `profile drift` compares those."""
    found = observe([record(10, batch_sequences=8.0, seq_len_tokens=512.0)], problem, NOW_S)
    assert found.seen == ()


def test_a_record_that_names_no_task_needs_a_role_of_one_task_only(problem):
    """Two tasks have a role `train`: whose it was is unknown."""
    assert observe([record(10, task="")], problem, NOW_S).seen == ()
    alone = replace(problem, tasks=problem.tasks[:1])
    assert seconds(observe([record(10, task="")], alone, NOW_S)) == {("a", "train"): 5.0}


def test_loads_are_pressure_staleness_and_busy_gpus(problem):
    """What was never reported is None or empty, not 0."""
    records = [record(20, stalest=3.0), record(10, stalest=2.0, queues={PRESSURE: 1.7})]
    samples = [sample(0.0, gpu(0, 20.0), gpu(1, 90.0)), sample(1.0, gpu(0, 40.0), gpu(1, None))]
    found = observe(records, problem, NOW_S, samples=samples)
    assert found.loads == (RoleLoad("a", "train", 1.0, 3.0, (pytest.approx(0.3),)),)
    only_gpus = observe([], problem, NOW_S, samples=samples)
    assert only_gpus.loads == (RoleLoad("a", "train", None, None, (pytest.approx(0.3),)),)
    assert (only_gpus.until_s, only_gpus.seen, only_gpus.progress) == (0.0, (), ())


@pytest.mark.parametrize(
    ("more", "detail"),
    [({"state": GpuState.LOST}, "off the bus"), ({"xids": (13, 79)}, "XID 79"), ({"xids": (95,)}, "XID 95")],
)
def test_gpus_that_no_process_survives_are_lost(problem, more, detail):
    """The next plan must not use them."""
    found = observe([], problem, NOW_S, samples=[sample(0.0, gpu(1, None, **more))])
    (event,) = found.events
    assert (event.kind, event.gpu, event.detail) == (EventKind.GPU_LOST, GpuId("node0", 1), detail)


@pytest.mark.parametrize("more", [{"state": GpuState.LATE}, {"xids": (13,)}, {"xids": ()}])
def test_gpus_that_are_late_or_had_a_harmless_error_are_not_lost(problem, more):
    """Moving a task for nothing costs its restart."""
    assert observe([], problem, NOW_S, samples=[sample(0.0, gpu(1, None, **more))]).events == ()


def test_what_a_file_states_replaces_what_was_derived(problem):
    """A user knows better."""
    stated = Observations(
        NOW_S - 5.0,
        progress=(TaskProgress("a", 100.0),),
        checkpoints=(CheckpointAge("a", 1.0),),
        events=(Event(EventKind.TASK_FINISHED, task="b"),),
    )
    aged = (CheckpointAge("a", 60.0), CheckpointAge("b", None))
    found = observe([record(10)], problem, NOW_S, checkpoints=aged, stated=stated)
    assert steps(found) == {"a": 100.0}
    assert {each.task: each.age_s for each in found.checkpoints} == {"a": 1.0, "b": None}
    assert seconds(found) == {("a", "train"): 5.0}
    assert [each.kind for each in found.events] == [EventKind.TASK_FINISHED]
    assert found.until_s == NOW_S - 10


def test_of_an_old_file_beside_records_only_losses_count(problem):
    """Nobody writes it any more, but a GPU that was lost stays lost."""
    lost, done = Event(EventKind.GPU_LOST, gpu=GpuId("node0", 1)), Event(EventKind.TASK_FINISHED, task="a")
    stated = Observations(
        NOW_S - RECENT_S - 1.0, seen=(ObservedTime("a", "train", 99.0),), events=(lost, done)
    )
    lines = []
    found = observe([record(10)], problem, NOW_S, stated=stated, notes=lines.append)
    assert (found.until_s, found.events) == (NOW_S - 10, (lost,))
    assert seconds(found) == {("a", "train"): 5.0}
    assert "301 s old" in lines[0]
    alone = observe([], problem, NOW_S, stated=stated, notes=lines.append)
    assert (len(alone.events), len(lines)) == (2, 1)
