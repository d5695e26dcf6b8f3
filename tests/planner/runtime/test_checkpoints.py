"""Whether a checkpoint answers an order: ours by its id, a framework's by being newer."""

from __future__ import annotations

import json

import msgspec
import pytest

from libra_plan.planner.launchers.manifest import Lifecycle
from libra_plan.planner.runtime.checkpoints import answer_to, marks_of, newest, withdraw, write_request
from libra_plan.planner.runtime.journal import Ordered
from libra_plan.planner.runtime.worker import checkpoint_requested, save_complete, step_folder

PLAIN = Lifecycle(stop_signal="SIGTERM", grace_s=1.0, checkpoint_dir="unused")
VERL = msgspec.structs.replace(PLAIN, checkpoint_sentinel="latest_checkpointed_iteration.txt")


def order(folder, after_step=None):
    return Ordered(task="t", request="q7", generation=3, folder=str(folder), after_step=after_step)


def save(folder, step, request=None):
    (step_folder(step, folder) / "f").write_text("x")
    path = save_complete(step, ["f"], folder)
    data = json.loads((path / "complete.json").read_text())
    (path / "complete.json").write_text(json.dumps({**data, "request": request}), encoding="utf-8")


def test_an_order_is_what_the_training_loop_reads_until_it_is_withdrawn(tmp_path):
    """Both sides must mean the same file."""
    folder = tmp_path / "new"
    write_request(order(folder))
    write_request(order(folder))
    assert checkpoint_requested(folder).id == "q7"
    assert [path.name for path in folder.iterdir()] == ["request.json"]
    withdraw(order(folder))
    withdraw(order(folder))
    assert checkpoint_requested(folder) is None


def test_a_program_that_knows_requests_answers_with_the_id(tmp_path):
    """A periodic save is newer than the order, too, but steps after it would be lost."""
    save(tmp_path, 10)
    assert answer_to(order(tmp_path, 10), PLAIN, knows_requests=True) is None
    save(tmp_path, 20)
    assert answer_to(order(tmp_path, 10), PLAIN, knows_requests=True) is None
    save(tmp_path, 20, request="q7")
    assert answer_to(order(tmp_path, 10), PLAIN, knows_requests=True).step == 20


def test_the_id_counts_even_for_the_step_that_was_saved_already(tmp_path):
    """A loop that is asked just after a periodic save has no newer step to offer."""
    save(tmp_path, 10, request="q7")
    assert answer_to(order(tmp_path, 10), PLAIN, knows_requests=False).step == 10


@pytest.mark.parametrize(("after_step", "found"), [(None, 10), (9, 10), (10, None)])
def test_a_program_that_knows_none_is_taken_at_its_next_checkpoint(tmp_path, after_step, found):
    """A033: an old checkpoint is no reason to stop a task."""
    save(tmp_path, 10)
    answer = answer_to(order(tmp_path, after_step), PLAIN, knows_requests=False)
    assert (answer and answer.step) == found


@pytest.mark.parametrize(("text", "step"), [("40\n", 40), ("", None), ("release", None), ("-3", None)])
def test_the_sentinel_of_a_framework_says_which_step_is_saved(tmp_path, text, step):
    """verl, slime and Megatron write the number of the last whole checkpoint to a file."""
    assert newest(tmp_path, VERL) is None
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    found = newest(tmp_path, VERL)
    assert (found and found.step) == step
    answer = answer_to(order(tmp_path, 20), VERL, knows_requests=False)
    assert (answer and answer.step) == step


def test_reports_are_read_line_by_line(tmp_path):
    """The first of each mark counts; a line that is being written must not disturb the others."""
    path = tmp_path / "p.jsonl"
    assert marks_of(path) == {}
    path.write_text('{"mark": "loading", "boot_s": 5.0}\n{"mark": "loading", "boot_s": 9}\n[]\n{"mark": "wa')
    assert marks_of(path) == {"loading": 5.0}


@pytest.mark.parametrize("text", ["9" * 30, "9" * 5000])
def test_a_step_that_no_journal_can_hold_is_no_step(tmp_path, text):
    """What a framework's file says must not end the supervisor in the middle of a hand-over."""
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    assert newest(tmp_path, VERL) is None


def test_reports_that_are_no_times_do_not_count(tmp_path):
    """They would be infinite costs of a move, or end the supervisor."""
    path = tmp_path / "p.jsonl"
    lines = ['{"mark": "polls", "boot_s": Infinity}', '{"mark": "loading", "boot_s": 1' + "0" * 400 + "}"]
    path.write_text("\n".join([*lines, "[" * 100_000, '{"mark": "warm", "boot_s": 3}']) + "\n")
    assert marks_of(path) == {"warm": 3.0}


def test_a_request_that_cannot_be_written_is_told_and_leaves_nothing_to_withdraw(tmp_path):
    """A full or read-only disk is a reason to go back, not to end."""
    (tmp_path / "file").write_text("")
    asked = order(tmp_path / "file" / "t")
    assert write_request(asked) == "Not a directory"
    withdraw(asked)
