"""Every format from its sample to a profile that loads."""

import json
import shutil

import pytest
from importing import GIVEN, SAMPLES, import_sample

from libra_plan.errors import InputError, ProfileError
from libra_plan.profiles.catalog import load_profile
from libra_plan.profiles.importers.run import FORMATS

KEPT = {
    "vllm-serve": {"serve": 7},
    "vllm-throughput": {"serve": 1},
    "sglang-serve": {"serve": 7},
    "aiconfigurator": {"serve": 15},
    "verl": {"train": 8, "score": 8, "reference": 8, "decode": 8},
    "nemo-rl": {"train": 7, "score": 7, "decode": 7},
    "csv": {"score": 14},
    "recording": {"train": 8},
}


def test_every_format_has_a_sample():
    """A format without a test of its own sample is not supported."""
    assert set(GIVEN) == set(FORMATS) == set(KEPT)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_what_is_imported_is_a_profile_that_loads_whole(name, tmp_path):
    """The catalog's own checks find nothing more to set aside, and the digests hold."""
    folders, report = import_sample(name, tmp_path)
    loaded = [load_profile(folder) for folder in folders]
    assert sorted(len(profile.points) for profile in loaded) == sorted(KEPT[name].values())
    assert sum(report.kept.values()) == sum(KEPT[name].values())
    assert all(profile.warnings == () for profile in loaded)
    assert all(len(profile.file.provenance.source_sha256) == 64 for profile in loaded)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_a_second_import_changes_nothing(name, tmp_path):
    """The output depends on source and facts alone."""
    first = {p.name: p.read_bytes() for f in import_sample(name, tmp_path)[0] for p in f.iterdir()}
    again, _ = import_sample(name, tmp_path, replace=True)
    second = {p.name: p.read_bytes() for f in again for p in f.iterdir()}
    assert first == second


@pytest.mark.parametrize("name", sorted(set(KEPT) - {"aiconfigurator"}))
def test_facts_that_no_format_states_are_demanded_all_at_once(name, tmp_path):
    """GPU, layout and precision are named in one message that says how to go on, never guessed."""
    with pytest.raises(InputError) as caught:
        import_sample(name, tmp_path, gpu_class=None, precision=None)
    error = caught.value
    assert error.exit_code == 2
    assert "--gpu-class" in error.got
    assert "--precision" in error.got
    assert "--gpu-class h200_sxm" in error.way_out
    assert error.allowed is not None
    assert error.where is not None
    assert not list(tmp_path.iterdir())


def test_empty_cells_of_a_table_are_demanded(tmp_path):
    """AIConfigurator leaves the engine's version empty in some rows."""
    with pytest.raises(InputError, match="no --framework-version"):
        import_sample("aiconfigurator", tmp_path, framework_version=None)


def test_an_unknown_model_of_a_table_is_asked_for(tmp_path):
    """The shape decides memory and floors: a name alone does not give it."""
    with pytest.raises(InputError, match=r"shape of kimi-k2\.5 is unknown"):
        import_sample("aiconfigurator", tmp_path, select="backend=vllm")


def test_an_unknown_gpu_class_needs_its_memory(tmp_path):
    """A class of the user's own is fine once its memory is stated."""
    with pytest.raises(InputError, match="--gpu-memory-mib"):
        import_sample("vllm-serve", tmp_path, gpu_class="h20_sxm")
    folders, _ = import_sample("vllm-serve", tmp_path, gpu_class="h20_sxm", gpu_memory_mib="97871")
    assert load_profile(folders[0]).file.hardware.memory_mib == 97871


def test_runs_whose_requests_queued_are_kept_out(tmp_path):
    """Real offline runs: the first token takes a third of the request, so the batch is unknown."""
    _, report = import_sample("sglang-serve", tmp_path)
    assert [item.where for item in report.quarantined] == [
        "sglang_llama70b_h200.jsonl:8",
        "sglang_llama70b_h200.jsonl:9",
    ]
    assert all("requests queue" in item.reason for item in report.quarantined)


def test_a_wrong_layout_is_found_by_the_floor(tmp_path):
    """70B in bf16 cannot make a token in 14.5 ms on one H200: its weights take 29 ms to read."""
    folders, report = import_sample("sglang-serve", tmp_path, tp="1")
    below = [item for item in report.quarantined if "below the floor of h200_sxm" in item.reason]
    assert len(below) == 5
    assert (folders[0] / "quarantined.csv").read_text().count("below the floor") == 5


def test_the_impossible_row_goes_and_its_right_neighbour_stays(tmp_path):
    """LLM-Inference-Bench prints 7.70 s at length 1,024 and less at 2,048."""
    folders, report = import_sample("csv", tmp_path)
    assert [item.where for item in report.quarantined] == ["table.csv:15"]
    assert (16, 2048) in {(p.batch_sequences, p.seq_len_tokens) for p in load_profile(folders[0]).points}


def test_a_step_time_copied_from_the_length_is_told_as_such(tmp_path):
    """NeMo-RL v0.5 first printed 974 s, the mean length; the step took 458 s."""
    _, report = import_sample("nemo-rl", tmp_path)
    assert len(report.quarantined) == 1
    assert "974 s" in report.quarantined[0].reason
    assert "it was copied" in report.quarantined[0].reason


def test_no_usable_row_is_an_error(tmp_path):
    """An import that keeps nothing must not leave an empty profile."""
    source = tmp_path / "bad.jsonl"
    source.write_text(json.dumps({"completed": 0, "duration": 1}) + "\n")
    with pytest.raises(ProfileError, match="no row of the source can be used"):
        import_sample("vllm-serve", tmp_path / "out", source=source)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_results_is_one_profile(tmp_path):
    """Each run of vLLM writes one JSON."""
    runs = tmp_path / "runs"
    runs.mkdir()
    for number, line in enumerate((SAMPLES / "vllm_serve.jsonl").read_text().splitlines()):
        (runs / f"run-{number}.json").write_text(line)
    (runs / "notes.txt").write_text("not a result")
    folders, report = import_sample("vllm-serve", tmp_path / "out", source=runs)
    assert len(folders) == 1
    assert sum(report.kept.values()) == 7


def test_a_cut_line_names_file_and_line(tmp_path):
    """A benchmark that was killed leaves half a line."""
    source = tmp_path / "cut.jsonl"
    source.write_text((SAMPLES / "vllm_serve.jsonl").read_text()[:-40])
    with pytest.raises(ProfileError, match=r"cut\.jsonl:7: not valid JSON"):
        import_sample("vllm-serve", tmp_path / "out", source=source)


def test_repeats_are_merged_or_none_is_believed(tmp_path):
    """Twice the same run is one row with its range; twice the time is a contradiction."""
    lines = [json.loads(line) for line in (SAMPLES / "vllm_serve.jsonl").read_text().splitlines()]
    near = {**lines[2], "mean_tpot_ms": lines[2]["mean_tpot_ms"] * 1.02}
    far = {**lines[3], "mean_tpot_ms": lines[3]["mean_tpot_ms"] * 1.2}
    source = tmp_path / "twice.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in [*lines, near, far]))
    folders, report = import_sample("vllm-serve", tmp_path / "out", source=source)
    points = {
        point.batch_sequences: point
        for point in load_profile(folders[0]).points
        if point.prompt_tokens == 512
    }
    assert points[16].repeats == 2
    assert points[16].time_low_s < points[16].time_s < points[16].time_high_s
    assert 32 not in points
    assert [item.reason[:30] for item in report.quarantined] == ["repeats of one measurement var"] * 2


def test_gigabytes_for_a_known_class_are_refused(tmp_path):
    """141 GB written as MiB would keep out every row for want of memory."""
    with pytest.raises(InputError, match="MiB, not GB"):
        import_sample("vllm-serve", tmp_path, gpu_memory_mib="141")


def test_a_profile_that_is_there_is_not_written_over(tmp_path):
    """Another source with the same facts has the same id: the first profile would be gone."""
    (first,), _ = import_sample("vllm-serve", tmp_path)
    before = (first / "points.csv").read_bytes()
    with pytest.raises(ProfileError, match="--replace") as caught:
        import_sample("vllm-serve", tmp_path)
    assert caught.value.got == first.name
    assert (first / "points.csv").read_bytes() == before
    (again,), _ = import_sample("vllm-serve", tmp_path, replace=True)
    assert again == first


def test_nothing_is_written_when_one_of_several_is_there(tmp_path):
    """Half an import is a folder nobody can trust."""
    folders, _ = import_sample("verl", tmp_path / "a")
    shutil.copytree(folders[-1], tmp_path / "b" / folders[-1].name)
    with pytest.raises(ProfileError, match="--replace"):
        import_sample("verl", tmp_path / "b")
    assert [each.name for each in (tmp_path / "b").iterdir()] == [folders[-1].name]
