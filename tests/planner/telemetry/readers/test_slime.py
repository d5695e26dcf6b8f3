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


def test_json_lines_of_a_step_are_joined_as_those_of_the_log(tmp_path):
    """A tracker's export has the same keys, and the number of the rollout as a field."""
    lines = [
        '{"rollout/step": 7, "perf/rollout_time": 98.0, "rollout/response_lengths": 3000.0}',
        '{"rollout/step": 7, "perf/step_time": 180.0, "perf/actor_train_time": 40.0}',
        '{"rollout/step": 8, "perf/rollout_time": 90.0}',
    ]
    (tmp_path / "slime.jsonl").write_text("\n".join(lines) + "\n")
    windows, skipped = read("slime", tmp_path / "slime.jsonl", samples=256)
    (actor,), (rollout,) = role(windows, "actor"), role(windows, "rollout")
    assert (actor.length_s, actor.working_s, rollout.tokens) == (180.0, 40.0, 3000.0 * 256)
    assert skipped == ["rollout 8 has no perf/step_time"]
