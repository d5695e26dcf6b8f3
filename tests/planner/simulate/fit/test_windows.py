"""Windows become steps: ranks once, waits left out, layouts from degrees."""

import pytest

from libra_plan.planner.simulate.fit.evidence import Recorded
from libra_plan.planner.simulate.fit.windows import add_windows
from libra_plan.planner.telemetry.work_windows import WorkWindow


def window(start_s, end_s, rank=0, *, role="trainer", source="", **more):
    """Make a window of one step of 100 tokens and 2 samples."""
    given = {"tokens": 100.0, "samples": 2.0, "steps": 1.0, "clock": "host", "dp": 2, **more}
    return WorkWindow(
        start_s=start_s,
        end_s=end_s,
        task="rl",
        role=role,
        dp_rank=rank,
        source=source or f"{role}-{rank}",
        **given,
    )


def seen(*windows):
    """Read windows."""
    found = Recorded()
    add_windows(windows, found, "w.jsonl")
    return found.tasks["rl"]


def test_ranks_of_a_step_are_joined_and_waits_left_out():
    """The slowest rank is the stage; tokens and samples add up."""
    stage = seen(window(0, 10, waiting_s=4.0), window(0, 10, 1, waiting_s=2.0)).stages["trainer"][0]
    assert (stage.seconds, stage.tokens, stage.placed) == (8.0, 200.0, (1, 1))


def test_processes_that_hold_the_same_rank_count_once():
    """Tensor-parallel ranks all count the same samples."""
    stage = seen(window(0, 10, tp=2, dp=1), window(0, 10, tp=2, dp=1, source="other")).stages["trainer"][0]
    assert (stage.tokens, stage.placed) == (100.0, (2,))


def test_windows_shorter_than_a_step_are_joined_until_it_ends():
    """A step of 25 s fills three windows of ten; one that has not ended is left out."""
    parts = [window(0, 10, steps=None, dp=1), window(10, 20, steps=None, dp=1), window(20, 25, dp=1)]
    found = seen(*parts, window(25, 35, steps=None, dp=1))
    assert [(each.seconds, each.tokens) for each in found.stages["trainer"]] == [(25.0, 300.0)]


def test_windows_of_several_steps_are_their_mean():
    """Two steps in a window are one entry in the middle of both."""
    found = seen(window(0, 10, steps=2.0, dp=1), window(10, 20, steps=2.0, dp=1))
    assert [(each.step, each.seconds, each.steps) for each in found.stages["trainer"]] == [
        (0.5, 5.0, 2.0), (2.5, 5.0, 2.0)]  # fmt: skip


def test_a_log_does_not_tell_the_gpus():
    """Steps that a trainer logged have no layout: the user must say it."""
    assert seen(window(0, 10, clock="steps", dp=1)).stages["trainer"][0].placed is None


def test_rollouts_that_state_their_shape_are_decode_steps():
    """Sequences at once and mean context make a window comparable with the law of a step."""
    given = {"batch_sequences": 32.0, "seq_len_tokens": 900.0, "waiting_s": 1.0}
    found = seen(window(0, 10, role="rollout", **given), window(10, 20, role="rollout"))
    (decode,) = found.decode
    assert (decode.sequences, decode.context_tokens, decode.seconds, decode.prompts) == (32, 900, 9, 2)
    assert found.responses == [(0.0, pytest.approx(50.0)), (1.0, pytest.approx(50.0))]
