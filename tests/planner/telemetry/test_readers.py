"""Readers of other programs' metrics: the same windows from every one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from libra_plan.errors import InputError, ProfileError
from libra_plan.planner.telemetry.readers import READERS, ReaderFacts, find_reader
from libra_plan.planner.telemetry.throughput import Ledger
from libra_plan.profiles.importers.records import read_source

SAMPLES = Path(__file__).parents[2] / "data" / "readers"


def read(name, file, **facts):
    rejected = []
    reader = find_reader(name)
    source = read_source(SAMPLES / file, reader.endings)
    windows = list(reader.read(source, ReaderFacts("task", **facts), rejected))
    return windows, [each.reason for each in rejected]


def role(windows, name):
    return [window for window in windows if window.role == name]


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


def test_nemo_rl_tokens_balance_with_what_its_page_prints():
    """Rate × GPUs × seconds of the printed row is 1.12 times batch × mean length, as known of it."""
    windows, rejected = read("nemo-rl", "nemo_rl.jsonl", gpus=16)
    actor = role(windows, "actor")
    assert actor[0].tokens == pytest.approx(1562 * 16 * 97.7)
    assert actor[0].tokens / (2048 * 1060) == pytest.approx(1.1248, abs=1e-3)
    assert (actor[1].waiting_s, actor[1].staleness, actor[1].queues) == (12.5, 1.5, {"experience": 160})
    assert role(windows, "rollout")[1].tokens == pytest.approx(0.75 * actor[1].tokens)
    assert rejected == ["no timing/train/total_step_time"]


def test_nemo_rl_with_samples_needs_no_gpus():
    """Samples × mean length are the tokens; without either the reader says what it lacks."""
    windows, _ = read("nemo-rl", "nemo_rl.jsonl", samples=2048)
    assert role(windows, "actor")[0].tokens == 2048 * 1060
    with pytest.raises(InputError, match="--gpus"):
        read("nemo-rl", "nemo_rl.jsonl")


def test_slime_log_lines_of_a_step_are_joined():
    """Rollout and training of a step are logged apart; torn lines and untrained rollouts are left out."""
    windows, rejected = read("slime", "slime.log", gpus=8)
    (actor,), (rollout,) = role(windows, "actor"), role(windows, "rollout")
    assert (actor.length_s, actor.waiting_s, actor.tokens, actor.samples) == (180, 120, 25_600 * 40, 256)
    assert (rollout.working_s, rollout.tokens) == (98, 3000 * 256)
    assert rejected == ["not a dictionary of numbers", "rollout 1 has no perf/step_time"]


def test_vllm_pages_become_windows_of_its_engines():
    """Counters are subtracted, gauges taken as they are; the engine label is the data-parallel rank."""
    windows, rejected = read("vllm", "vllm.prom")
    first = [window for window in windows if window.end_s == 1_700_000_010.5]
    assert [(w.dp_rank, w.tokens, w.samples, w.length_s) for w in first] == [
        (0, 50_000, 10, 10),
        (1, 40_000, 5, 10),
    ]
    assert (first[0].queues, first[0].batch_sequences) == ({"rollout": 5}, 64)
    assert first[0].seq_len_tokens == pytest.approx((2000 + 10_000 / 2) / 10)
    assert rejected == ["no metric begins with vllm:: the engine was down"]


def test_a_counter_that_was_reset_counts_from_0():
    """After a restart the counter is below what it was: what it shows was done since then."""
    windows, _ = read("vllm", "vllm.prom")
    restarted = [window.tokens for window in windows if window.dp_rank == 0]
    assert restarted == [50_000, 20_000, 50_000]
    ledger = Ledger()
    for window in windows:
        ledger.add(window)
    (rate,) = ledger.totals()
    assert rate.tokens_per_s * rate.covered_s == 50_000 + 20_000 + 50_000 + 40_000 + 10_000 + 50_000


def test_a_page_that_is_none_is_left_out(tmp_path):
    """A proxy's error page, and a page that is torn at the end of the file, are no metrics."""
    first, second, *_ = (SAMPLES / "vllm.prom").read_text().split("# scrape ")[1:]
    pages = f"# scrape {first}# scrape 1700000005.0\n<html>bad gateway {{</html>\n# scrape {second}"
    (tmp_path / "a.prom").write_text(pages + "# scrape 1700000050.0\nvllm:num_req")
    rejected = []
    source = read_source(tmp_path / "a.prom", (".prom",))
    found = list(READERS["vllm"].read(source, ReaderFacts(), rejected))
    assert [window.tokens for window in found] == [50_000, 40_000]
    assert len(rejected) == 1
    assert "not a page of metrics" in rejected[0].reason


def test_a_step_without_length_is_left_out(tmp_path):
    """A step of 0 s has no rate."""
    (tmp_path / "run.jsonl").write_text('{"timing_s/step": 0.0, "timing_s/gen": 0.0}\n')
    rejected = []
    source = read_source(tmp_path / "run.jsonl", (".jsonl",))
    assert list(READERS["verl"].read(source, ReaderFacts(), rejected)) == []
    assert [each.reason for each in rejected] == ["the step took 0 s"]


def test_an_unknown_reader_is_refused_with_the_names_there_are():
    """A slip of the pen should cost one look."""
    with pytest.raises(InputError, match="nemo-rl") as caught:
        find_reader("nemorl")
    assert "nemo-rl" in caught.value.way_out


def test_servers_are_ranks_of_their_own(tmp_path):
    """Two servers both call their engine 0; their tokens add up and their pages are not subtracted."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.prom").write_text((SAMPLES / "vllm.prom").read_text())
    one, _ = read("vllm", "vllm.prom")
    both = list(READERS["vllm"].read(read_source(tmp_path, (".prom",)), ReaderFacts("task"), []))
    ledgers = [Ledger(), Ledger()]
    for ledger, windows in zip(ledgers, (one, both), strict=True):
        for window in windows:
            ledger.add(window)
    (single,), (double,) = (list(ledger.totals()) for ledger in ledgers)
    assert (single.ranks, double.ranks) == (2, 4)
    assert double.tokens_per_s == pytest.approx(2 * single.tokens_per_s)


def test_a_role_with_two_keys_takes_the_one_that_is_there(tmp_path):
    """NeMo-RL times log-probabilities under one name or another."""
    line = '{"timing/train/total_step_time": 10.0, "timing/train/policy_and_reference_logprobs": 4.0}\n'
    (tmp_path / "run.jsonl").write_text(line)
    source = read_source(tmp_path / "run.jsonl", (".jsonl",))
    (window,) = READERS["nemo-rl"].read(source, ReaderFacts(), [])
    assert (window.role, window.working_s) == ("reference", 4.0)


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("slime", "a.log", "perf 3: {1, 2}\n"),
        ("slime", "a.log", "perf 3: {[]: 1}\n"),
        ("slime", "a.log", f"perf {'9' * 5000}: {{'perf/step_time': 10}}\n"),
        ("slime", "a.log", f"perf 3: {{'perf/step_time': 1{'0' * 400}}}\n"),
        ("verl", "a.jsonl", f'{{"timing_s/step": 1{"0" * 400}}}\n'),
        ("vllm", "a.prom", "# scrape 1.2.3\nvllm:num_requests_running 1\n"),
        ("vllm", "a.prom", "# scrape .\nvllm:num_requests_running 1\n"),
        ("vllm", "a.prom", f"# scrape {'9' * 400}\nvllm:num_requests_running 1\n"),
    ],
)
def test_a_log_that_was_mangled_gives_nothing_and_ends_nothing(tmp_path, name, file, text):
    """Lines of many processes run into each other, and disks fill up."""
    (tmp_path / file).write_text(text)
    source = read_source(tmp_path / file, find_reader(name).endings)
    assert list(find_reader(name).read(source, ReaderFacts(), [])) == []


def test_json_with_a_number_of_thousands_of_digits_is_refused(tmp_path):
    """Python refuses to read it, with an error that is none of JSON's."""
    (tmp_path / "a.jsonl").write_text(f'{{"timing_s/step": 1{"0" * 5000}}}\n')
    source = read_source(tmp_path / "a.jsonl", (".jsonl",))
    with pytest.raises(ProfileError, match=r"a.jsonl:1: not valid JSON"):
        list(READERS["verl"].read(source, ReaderFacts(), []))
