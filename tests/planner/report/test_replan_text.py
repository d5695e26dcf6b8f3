"""What the loop decided, as people and programs read it."""

from __future__ import annotations

import json
from dataclasses import replace

from libra_plan.planner.controller.history import Explained, Replayed, Replays
from libra_plan.planner.controller.job_queue import TaskQueue, TaskRequest
from libra_plan.planner.controller.replan import Replanned
from libra_plan.planner.controller.state import Considered, Decision, Move, Rung
from libra_plan.planner.controller.store import LookRow, OutcomeRow
from libra_plan.planner.report import replan_text
from libra_plan.planner.telemetry.observations import BatchStep, Event, EventKind

MOVE = Move("a", "grow", 2, 4, 0.5, 0.1, 0.05, 60.0, "train 4 × tp1")
DECISION = Decision(
    Rung.TASKS,
    "gain",
    "1 changes bring +0.5",
    (MOVE,),
    gain=0.5,
    net=0.35,
    cost=0.05,
    running=3.0,
    considered=(Considered(Rung.TASKS, 0.35, (MOVE,), "adopted"),),
    events=(Event(EventKind.TASK_ARRIVED, "b"),),
    orders=("checkpoint:a",),
    notes=("a/train is imbalanced",),
)
ROW = LookRow(
    7, 1.8e9, "move-tasks", "gain", "why", 0.5, 0.35, 0.05, "applied", "p", "s", "t", "d", None, None
)


def test_a_look_as_lines() -> None:
    """What was decided, every move with its figures, what is wanted first, and what was written."""
    assert replan_text.look_text(Replanned(7, DECISION, "applied", 3, 600.0)).splitlines() == [
        "look 7: move-tasks [gain] 1 changes bring +0.5",
        "  a: grow, 2 → 4 GPUs train 4 × tp1 (+0.5, doubt 0.1, switch 60 s)",
        "  wanted first: checkpoint:a",
        "  a/train is imbalanced",
        "  generation 3 written",
    ]
    step = BatchStep("a", "train", "micro_batch_tokens", 2048.0, 4096.0, 0.1)
    stepped = Decision(Rung.BATCHES, "batches", "saves", batch_steps=(step,))
    assert replan_text.look_text(Replanned(8, stepped, "dry-run", 3, 600.0)).splitlines() == [
        "look 8: step-batches [batches] saves",
        "  a/train: micro_batch_tokens 2048 → 4096",
        "  dry run: nothing was written",
    ]


def test_a_look_as_data_leaves_out_the_plan() -> None:
    """The manifest has it; the rest can be written as JSON."""
    data = replan_text.look_data(Replanned(7, DECISION, "applied", 3, 600.0))
    assert "plan" not in data
    assert (data["look"], data["rung"], data["outcome"], data["generation"]) == (
        7,
        "move-tasks",
        "applied",
        3,
    )
    assert json.loads(json.dumps(data))["moves"][0]["task"] == "a"


def test_the_history_is_a_table_in_utc() -> None:
    """A079: times say which they are; unknown gains are empty, not 0."""
    kept = replace(ROW, id=8, rung="keep", rule="bound", gain=None, net=None, outcome="kept")
    header, first, second = replan_text.history_text([ROW, kept]).splitlines()
    assert header.split("  ")[0] == "look"
    assert first.split() == [
        "7", "2027-01-15", "08:00:00Z", "move-tasks", "gain", "+0.5", "+0.35", "applied",
    ]  # fmt: skip
    assert second.split() == ["8", "2027-01-15", "08:00:00Z", "keep", "bound", "kept"]
    assert replan_text.history_data([ROW])[0]["at"] == "2027-01-15 08:00:00Z"


def test_a_look_is_explained_with_what_came_of_it() -> None:
    """Figures, events, what was considered, and predicted against observed times."""
    found = Explained(ROW, DECISION, (OutcomeRow(7, "a", "train", 10.0, 11.0, 9),))
    lines = replan_text.explained_text(found).splitlines()
    assert lines[0] == "look 7, 2027-01-15 08:00:00Z: move-tasks [gain], applied"
    assert lines[2] == "running 3, gain 0.5, net at least 0.35, switch cost 0.05 (weighted fair shares)"
    assert "event: task-arrived b" in lines
    assert "considered move-tasks: net +0.35, adopted" in lines
    assert lines[-1] == "came of it: a/train 10 s predicted, 11 s seen at look 9 (+10.0%)"
    data = replan_text.explained_data(found)
    assert data["came_of_it"][0]["realised_s"] == 11.0
    assert "plan" not in data["decision"]


def test_a_replay_names_what_came_out_otherwise() -> None:
    """How many looks agree, and each that does not with what it is now."""
    now = Decision(Rung.KEEP, "looks", "not yet")
    found = Replays((Replayed(ROW, True, DECISION), Replayed(ROW, False, now)), (3, 4, 5))
    assert replan_text.replay_text(found, other_policy=False).splitlines() == [
        "2 looks derived again, 1 as recorded, bit for bit",
        "look 7: move-tasks [gain] → keep [looks] not yet",
    ]
    assert "1 the same kind of change" in replan_text.replay_text(found, other_policy=True)
    assert replan_text.passed_over_text(found).startswith("passed over: looks 3 to 5, before")
    assert replan_text.passed_over_text(replace(found, passed_over=(3,))).startswith("passed over: look 3,")
    data = replan_text.replay_data(found, 0.5)
    assert (data["looks"], data["otherwise"][0]["is"], data["passed_over"]) == (2, "keep", (3, 4, 5))


def test_the_queue_as_lines() -> None:
    """What was asked with its reason, and who has waited how long."""
    asked = (
        TaskRequest("a", "paused", None, None, None, 0.0, "maintenance"),
        TaskRequest("b", "wanted", 4.0, 2, None, 0.0, ""),
    )
    assert replan_text.queue_text(TaskQueue(asked, {"c": 61.0})).splitlines() == [
        "a paused: maintenance",
        "b wanted weight 4 tier 2",
        "c has waited 61 s",
    ]
