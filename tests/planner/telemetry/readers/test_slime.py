"""slime's log: the same windows as from every other reader."""

from __future__ import annotations

from reader_cases import read, role


def test_slime_log_lines_of_a_step_are_joined():
    """Rollout and training of a step are logged apart; torn lines and untrained rollouts are left out."""
    windows, rejected = read("slime", "slime.log", gpus=8)
    (actor,), (rollout,) = role(windows, "actor"), role(windows, "rollout")
    assert (actor.length_s, actor.waiting_s, actor.tokens, actor.samples) == (180, 120, 25_600 * 40, 256)
    assert (rollout.working_s, rollout.tokens) == (98, 3000 * 256)
    assert rejected == ["not a dictionary of numbers", "rollout 1 has no perf/step_time"]
