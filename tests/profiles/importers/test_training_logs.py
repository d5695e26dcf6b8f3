"""Trainers' logs to points: whose time, whose tokens, whose memory."""

import json

import pytest
from importing import RUN, SAMPLES, import_sample

from libra_plan.errors import InputError
from libra_plan.profiles.catalog import load_profile

STEPS = [json.loads(line) for line in (SAMPLES / "verl.jsonl").read_text().splitlines()]


def written(folder, steps):
    folder.mkdir(exist_ok=True)
    path = folder / "verl.jsonl"
    path.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return path


def points(folders, suffix):
    return load_profile(next(f for f in folders if f.name.endswith(suffix))).points


def test_an_update_is_the_time_over_epochs_and_mini_batches(tmp_path):
    """512 samples in 4 mini-batches on 8 ranks are 16 a rank and step of the optimizer."""
    folders, _ = import_sample("verl", tmp_path)
    point = points(folders, "-train")[0]
    step = STEPS[0]["data"]
    assert (point.batch_sequences, point.seq_len_tokens, point.dp) == (16, 500, 8)
    assert point.time_s == pytest.approx(step["timing_s/update_actor"] / 4)
    twice, _ = import_sample("verl", tmp_path / "twice", epochs="2")
    assert points(twice, "-train")[0].time_s == pytest.approx(point.time_s / 2)


def test_memory_named_gb_is_gib(tmp_path):
    """Bytes are divided by 1024³ and called GB; taken at their word they are 7 % too few."""
    folders, _ = import_sample("verl", tmp_path)
    reserved = STEPS[0]["data"]["perf/max_memory_reserved_gb"]
    assert points(folders, "-train")[0].peak_reserved_mib == pytest.approx(reserved * 1024)
    assert all(point.peak_reserved_mib is None for point in points(folders, "-score"))


def test_memory_above_the_card_is_left_out_and_the_time_kept(tmp_path):
    """A colocated engine's pool is counted by torch, as if there were 200 GiB."""
    steps = json.loads(json.dumps(STEPS))
    steps[0]["data"]["perf/max_memory_reserved_gb"] = 216.9
    folders, report = import_sample("verl", tmp_path / "out", source=written(tmp_path / "in", steps))
    assert points(folders, "-train")[0].peak_reserved_mib is None
    assert len(points(folders, "-train")) == 8
    assert any("left out" in warning for warning in report.warnings)


def test_generation_becomes_the_mean_decode_step(tmp_path):
    """As many steps as tokens in the longest response; ΣL ÷ longest run on average on each engine."""
    folders, _ = import_sample("verl", tmp_path)
    point = points(folders, "-decode")[0]
    step = STEPS[0]["data"]
    assert point.time_s == pytest.approx(step["timing_s/gen"] / 2048)
    assert point.batch_sequences == round(512 * 400 / 2048 / 8)
    assert point.seq_len_tokens == 300


def test_a_rate_that_does_not_balance_keeps_the_step_out(tmp_path):
    """tokens/s/GPU × GPUs × seconds must be the tokens: 8 GPUs reported as 4 are found."""
    with pytest.raises(InputError, match=r"is 0\.5 of"):
        import_sample("verl", tmp_path, gpus="4")


def test_flat_lines_and_a_trackers_csv_say_the_same(tmp_path):
    """Trackers export columns, the file logger nests them."""
    nested, _ = import_sample("verl", tmp_path / "nested")
    path = tmp_path / "export.csv"
    keys = list(STEPS[0]["data"])
    rows = [",".join(keys)] + [",".join(str(step["data"][key]) for key in keys) for step in STEPS]
    path.write_text("\n".join(rows) + "\n")
    flat, _ = import_sample("verl", tmp_path / "flat", source=path)
    assert points(nested, "-train") == points(flat, "-train")


def test_the_critic_is_only_imported_with_its_model(tmp_path):
    """The log does not say how large it is."""
    steps = json.loads(json.dumps(STEPS))
    for step in steps:
        step["data"]["timing_s/values"] = step["data"]["timing_s/ref"]
    source = written(tmp_path / "in", steps)
    folders, report = import_sample("verl", tmp_path / "a", source=source)
    assert any("--critic-model" in warning for warning in report.warnings)
    assert not any(folder.name.endswith("-critic-score") for folder in folders)
    folders, _ = import_sample("verl", tmp_path / "b", source=source, critic_model="qwen2.5-7b")
    assert len(points(folders, "-critic-score")) == 8


def test_a_layout_that_does_not_divide_the_run_is_refused(tmp_path):
    """3 does not divide 8 GPUs: one of the two flags is wrong."""
    assert RUN["gpus"] == "8"
    with pytest.raises(InputError, match="does not divide"):
        import_sample("verl", tmp_path, tp="3")


def test_one_timing_of_two_passes_is_halved(tmp_path):
    """NeMo-RL times policy and reference together."""
    two, _ = import_sample("nemo-rl", tmp_path / "two")
    one, _ = import_sample("nemo-rl", tmp_path / "one", score_passes="1")
    assert points(one, "-score")[0].time_s == pytest.approx(2 * points(two, "-score")[0].time_s)
