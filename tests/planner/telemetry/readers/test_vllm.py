"""vLLM's pages of metrics: the same windows as from every other reader."""

from __future__ import annotations

import pytest
from reader_cases import SAMPLES, read

from libra_plan.planner.telemetry.readers import READERS, ReaderFacts
from libra_plan.planner.telemetry.throughput import Ledger
from libra_plan.profiles.importers.records import read_source


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
