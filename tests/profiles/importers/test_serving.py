"""One serving run to one point."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from importing import import_sample

from libra_plan.errors import ProfileError
from libra_plan.profiles.catalog import load_profile
from libra_plan.profiles.importers.base import BadRow
from libra_plan.profiles.importers.records import SourceRecord
from libra_plan.profiles.importers.serving import Bench


def run(batch=16, prompt=512, output=256, tpot=0.02, ttft=0.3, cap=None, **changes):
    """Make a run that keeps `batch` requests in flight from start to end."""
    requests = 20 * batch
    e2e = ttft + (output - 1) * tpot
    duration = requests * e2e / batch
    fields = {
        "completed": requests,
        "duration": duration,
        "total_input_tokens": requests * prompt,
        "total_output_tokens": requests * output,
        "output_throughput": requests * output / duration,
        "mean_ttft_ms": 1e3 * ttft,
        "mean_tpot_ms": 1e3 * tpot,
        "mean_e2el_ms": 1e3 * e2e,
        "max_concurrency": cap,
        **changes,
    }
    return SourceRecord("run.json", fields)


def serve_row(record, layout):
    """Read a run as vLLM's `bench serve` writes it."""
    return Bench("vllm", ("mean_ttft_ms",), "mean_e2el_ms").row(record, layout)


@given(st.integers(1, 512), st.integers(1, 8192), st.integers(2, 2048), st.floats(0.004, 0.2))
def test_what_ran_is_what_is_found(batch, prompt, output, tpot):
    """Batch, lengths and time per token come back from totals and latencies alone."""
    row, notes = serve_row(run(batch, prompt, output, tpot, ttft=0.1 * tpot, cap=batch), {"tp": 2})
    point = row.point
    assert (point.batch_sequences, point.prompt_tokens, point.output_tokens) == (batch, prompt, output)
    assert point.time_s == pytest.approx(tpot, rel=1e-6)
    assert point.tp == 2
    assert notes == []


def test_without_a_cap_littles_law_gives_the_concurrency():
    """By it, completed ÷ duration × latency is what was in flight."""
    assert serve_row(run(batch=24), {})[0].point.batch_sequences == 24


def test_a_cap_that_was_not_held_is_not_believed():
    """20 requests never fill 64 slots."""
    row, notes = serve_row(run(batch=20, cap=64), {})
    assert row.point.batch_sequences == 20
    assert "not 64" in notes[0]


def test_the_other_definition_of_time_per_token_is_seen_and_replaced():
    """e2e ÷ output holds the prefill; both definitions are in use under one name."""
    honest = run(ttft=2.0)
    other = run(ttft=2.0, cap=16, mean_tpot_ms=honest.fields["mean_e2el_ms"] / 256)
    row, notes = serve_row(other, {})
    assert row.point.time_s == pytest.approx(0.02)
    assert "e2e/out" in notes[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"completed": 0},
        {"duration": None},
        {"mean_ttft_ms": None},
        {"mean_tpot_ms": None, "mean_e2el_ms": None},
        {"total_output_tokens": 320},  # one token a request
        {"output_throughput": 10_000.0},  # does not balance
        {"mean_e2el_ms": 100.0},  # ends before its first token
    ],
)
def test_a_run_that_cannot_be_true_is_a_bad_row(changes):
    """Each is kept out with a reason."""
    with pytest.raises(BadRow):
        serve_row(run(**changes), {})


def test_queued_requests_without_a_cap_are_a_bad_row():
    """The time to the first token is then waiting, and the batch that ran is unknown."""
    with pytest.raises(BadRow, match="requests queue"):
        serve_row(run(ttft=10.0), {})


def test_throughput_lengths_must_match_the_tokens(tmp_path):
    """The rate counts prompt and output together; the split is the user's to state, and is checked."""
    with pytest.raises(ProfileError, match="768 tokens per request, not 512 \\+ 512"):
        import_sample("vllm-throughput", tmp_path, output_tokens="512")
    folders, _ = import_sample("vllm-throughput", tmp_path)
    point = load_profile(folders[0]).points[0]
    assert point.time_s == pytest.approx(60.0 * 128 / (1024 * 256))
