"""verl's metrics: the same windows as from every other reader."""

from __future__ import annotations

import pytest
from reader_cases import read, role


def test_verl_steps_become_windows_of_its_roles():
    """Each role's window is as long as the step, and what is not its own stage is waiting."""
    windows, rejected = read("verl", "verl.jsonl")
    first, second, _ = role(windows, "rollout")
    assert (first.start_s, first.end_s, second.end_s) == (0, 790.10, pytest.approx(1155.38))
    assert first.working_s == pytest.approx(357.41)
    assert [window.steps for window in role(windows, "actor")] == [1.0, 1.0, 1.0]
    assert first.tokens is None  # the printed table does not say: unknown, not 0
    assert rejected == ["no timing_s/step or perf/time_per_step"]


def test_verl_fully_async_queues_and_waits():
    """The trainer's wait is the sum it states; idle_ratio holds the last pause only (A052)."""
    windows, _ = read("verl", "verl.jsonl")
    actor = role(windows, "actor")[-1]
    assert (actor.waiting_s, actor.queues) == (25.0, {"experience": 96, "rollout": 128})
    assert (actor.tokens, actor.samples) == (512_000, 512)
    assert role(windows, "rollout")[-1].tokens == 800 * 512
