"""Recordings of our own, and lines of counters."""

import json

import pytest
from importing import SAMPLES, import_sample

from libra_plan.errors import InputError
from libra_plan.profiles.catalog import load_profile


def test_a_recording_gives_a_row_a_window_of_one_role(tmp_path):
    """Roles share a file; the first line of a role starts its clock."""
    folders, _ = import_sample("recording", tmp_path)
    lines = [json.loads(line) for line in (SAMPLES / "recording.jsonl").read_text().splitlines()]
    own = [line for line in lines if line["role"] == "actor"]
    loaded = load_profile(folders[0])
    assert len(loaded.points) == len(own) - 1
    found = {(p.batch_sequences, p.seq_len_tokens): p.time_s for p in loaded.points}
    assert found[16, 1024] == pytest.approx((own[1]["t_s"] - own[0]["t_s"]) / 20)


def test_a_clock_that_goes_back_is_kept_out(tmp_path):
    """A monitor that was restarted must not make a negative step."""
    lines = [json.loads(line) for line in (SAMPLES / "recording.jsonl").read_text().splitlines()]
    lines[6]["t_s"] = 0.0
    source = tmp_path / "recording.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    _, report = import_sample("recording", tmp_path / "out", source=source)
    assert any("does not go forward" in item.reason for item in report.quarantined)


def test_a_role_that_was_not_recorded_is_refused_with_those_that_were(tmp_path):
    """The message lists them."""
    with pytest.raises(InputError, match="actor, rollout"):
        import_sample("recording", tmp_path, role="critic")


def counter_lines(*ranks, steps=20, **more):
    """Return lines as counters write them: six places, each a window of 10 s of which 2 s are waiting."""
    for rank in ranks:
        for at, batch in enumerate((1, 2, 4, 8, 16, 32)):
            yield {
                "schema_version": 1,
                "task": "t",
                "role": "actor",
                "dp_rank": rank,
                "start_s": 100.0 * at,
                "t_s": 100.0 * at + 10.0 * batch,
                "waiting_s": 2.0 * batch,
                "tokens": steps * batch * 1024,
                "steps": steps,
                "batch_sequences": batch,
                "seq_len_tokens": 1024,
            } | more


def write_counters(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_lines_of_counters_become_points_without_the_time_they_waited(tmp_path):
    """One rank is read, and stands for all: steps are taken together, tokens add up."""
    source = write_counters(tmp_path / "c.jsonl", counter_lines(0, 1))
    folders, _ = import_sample("recording", tmp_path / "out", source=source, gpus="2", model="qwen2.5-0.5b")
    points = load_profile(folders[0]).points
    assert [(point.batch_sequences, point.dp) for point in points] == [(b, 2) for b in (1, 2, 4, 8, 16, 32)]
    assert points[0].time_s == pytest.approx(8.0 / 20)
    assert points[0].tokens_per_s == pytest.approx(2 * 20 * 1024 / 8.0)


def test_counters_of_several_tasks_are_not_mixed(tmp_path):
    """Two tasks may have a role of the same name."""
    both = [*counter_lines(0), *counter_lines(0, task="u")]
    with pytest.raises(InputError, match="several tasks"):
        import_sample("recording", tmp_path / "out", source=write_counters(tmp_path / "c.jsonl", both))
