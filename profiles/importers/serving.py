"""Serving benchmarks of vLLM and SGLang: from one run's totals and latencies to a point of phase `serve`.

vLLM's `bench serve --save-result` and SGLang's `bench_serving --output-file` write totals, a cap on
concurrency and latencies in ms; older SGLang states only the median time to the first token and no
time per token. vLLM's `bench throughput --output-json` writes `elapsed_time`, `num_requests`,
`total_num_tokens` and `tokens_per_second`, the last two over prompt and output tokens. None says on
which GPU, layout, precision or version it ran.

Concurrency is what was in flight on average, completed ÷ duration × end-to-end latency (Little's
law), compared with the cap the run was given. Seconds per output token are (e2e − ttft) ÷
(output − 1): every token after the first. Where a run states end-to-end latency and a time per
token that does not fit it, the end-to-end latency is believed: two definitions are in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from libra_plan.profiles.importers.base import (
    BadRow,
    Format,
    Reading,
    SourceRow,
    draft_of,
    layout_of,
    usable,
)
from libra_plan.profiles.importers.facts import ImportFacts
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord, records
from libra_plan.profiles.physics import BALANCE
from libra_plan.profiles.schema import Method, Point

__all__ = ["SGLANG_SERVE", "TPOT_DEFINITION", "VLLM_SERVE", "VLLM_THROUGHPUT", "Bench"]

TPOT_DEFINITION = "(e2e-ttft)/(out-1)"
_METHOD = Method(tokens_counted="output", throughput_basis="total", tpot_definition=TPOT_DEFINITION)
_THROUGHPUT = Method(
    tokens_counted="input+output",
    throughput_basis="total",
    tpot_definition="elapsed*concurrency/output tokens",
)
_HELD = 0.95
_QUEUED = 0.2
_DEFINITIONS_DIFFER = 0.1
_FULL_WAVES = 4  # with fewer, the last, part-filled wave of requests weighs in


@dataclass(frozen=True)
class Bench:
    """The keys of one program's results: times to the first token (the first one stated counts), latency."""

    framework: str
    ttft: tuple[str, ...]
    e2e: str

    def read(self, source: SourceFiles, facts: ImportFacts) -> Reading:
        """Read every run of a source."""
        layout = layout_of(facts)
        found, rejected = usable(records(source), lambda record: (record, *self.row(record, layout)))
        warnings = [note for _, _, notes in found for note in notes]
        medians = sum(record.positive(self.ttft[0]) is None for record, _, _ in found)
        if medians:
            warnings.append(
                f"{medians} rows state only the median time to the first token; it is taken as the mean"
            )
        rows = [row for _, row, _ in found]
        draft = draft_of(facts, "-serve", "serve", rows, _METHOD, framework=self.framework)
        return Reading((draft,), rejected, warnings)

    def row(self, record: SourceRecord, layout: Mapping[str, int]) -> tuple[SourceRow, list[str]]:
        """Make the row of one run, with remarks; raise BadRow when it cannot be used."""
        completed, duration = _known(record, "completed"), _known(record, "duration")
        outputs = _known(record, "total_output_tokens")
        prompt = round(_known(record, "total_input_tokens") / completed)
        output = outputs / completed
        ttft = _known(record, *self.ttft, shown="the time to the first token") / 1e3
        if output < 2:
            raise BadRow(f"{output:.1f} tokens per request: no token follows the first")
        rate = record.positive("output_throughput") or outputs / duration
        balance = rate * duration / outputs
        if not BALANCE[0] <= balance <= BALANCE[1]:
            raise BadRow(f"output tokens/s times seconds is {balance:.3g} of the output tokens stated")
        e2e, tpot, notes = self._latencies(record, ttft, output)
        batch, more = _concurrency(record, completed / duration * e2e, ttft / e2e)
        point = Point(
            batch_sequences=batch,
            prompt_tokens=max(prompt, 1),
            output_tokens=round(output),
            time_s=tpot,
            ttft_s=ttft,
            tokens_per_s=rate,
        )
        row = SourceRow(record.where, msgspec.structs.replace(point, **layout))
        return row, [f"{record.where}: {note}" for note in (*notes, *more)]

    def _latencies(self, record: SourceRecord, ttft: float, output: float) -> tuple[float, float, list[str]]:
        """Return end-to-end seconds, seconds per token after the first, and a remark."""
        latency, stated_ms = record.positive(self.e2e), record.positive("mean_tpot_ms")
        if latency is None:
            tpot = _known(record, "mean_tpot_ms", shown="the time per output token") / 1e3
            return ttft + (output - 1) * tpot, tpot, []
        e2e = latency / 1e3
        if e2e <= ttft:
            raise BadRow(f"the first token comes after {ttft:.4g} s, the last after {e2e:.4g} s")
        tpot = (e2e - ttft) / (output - 1)
        stated = None if stated_ms is None else stated_ms / 1e3
        if stated is None or abs(stated / tpot - 1) <= _DEFINITIONS_DIFFER:
            return e2e, tpot, []
        said = f"the time per token stated, {stated:.4g} s, is not {tpot:.4g} s = {TPOT_DEFINITION}"
        if abs(stated * output / e2e - 1) <= 0.02:
            said += " but e2e/out, prefill included"
        return e2e, tpot, [f"{said}; the latter is taken"]


def _known(record: SourceRecord, *keys: str, shown: str | None = None) -> float:
    value = record.positive(*keys)
    if value is None:
        raise BadRow(f"{shown or keys[0]} is missing or not above 0")
    return value


def _concurrency(record: SourceRecord, in_flight: float, waiting: float) -> tuple[int, list[str]]:
    cap = record.positive("max_concurrency")
    if cap is not None and _HELD <= in_flight / cap <= BALANCE[1]:
        return round(cap), []
    if cap is None and waiting > _QUEUED:
        raise BadRow(
            f"the first token takes {waiting:.0%} of a request: with no cap on concurrency requests queue, "
            "and how many ran at once is unknown"
        )
    batch = max(round(in_flight), 1)
    if not BALANCE[0] <= in_flight / batch <= BALANCE[1]:
        raise BadRow(f"{in_flight:.2f} requests in flight on average is no whole number to fit at")
    if cap is None:
        return batch, []
    return batch, [f"{in_flight:.1f} requests were in flight on average, not {cap:.0f}: taken as {batch}"]


# ---------------------------------------------------------------- bench throughput


def _read_throughput(source: SourceFiles, facts: ImportFacts) -> Reading:
    warnings: list[str] = []
    rows, rejected = usable(records(source), lambda record: _throughput_row(record, facts, warnings))
    notes = "time per output token includes the prefill that was done meanwhile"
    draft = draft_of(facts, "-throughput", "serve", rows, _THROUGHPUT, framework="vllm", notes=notes)
    return Reading((draft,), rejected, warnings)


def _throughput_row(record: SourceRecord, facts: ImportFacts, warnings: list[str]) -> SourceRow:
    elapsed, requests = record.positive("elapsed_time"), record.positive("num_requests")
    tokens, rate = record.positive("total_num_tokens"), record.positive("tokens_per_second")
    assert facts.prompt_tokens
    assert facts.output_tokens
    assert facts.concurrency
    if elapsed is None or requests is None or tokens is None:
        raise BadRow("elapsed_time, num_requests or total_num_tokens is missing or not above 0")
    per_request = facts.prompt_tokens + facts.output_tokens
    if abs(requests * per_request / tokens - 1) > 0.02:
        raise BadRow(
            f"{tokens / requests:.0f} tokens per request, not {facts.prompt_tokens} + {facts.output_tokens}: "
            "state the lengths of this run, or import it alone"
        )
    if rate is not None and not BALANCE[0] <= rate * elapsed / tokens <= BALANCE[1]:
        raise BadRow(f"tokens/s times seconds is {rate * elapsed / tokens:.3g} of total_num_tokens")
    batch = min(facts.concurrency, round(requests))
    if batch < requests < _FULL_WAVES * batch:
        warnings.append(
            f"{record.where}: {requests:.0f} requests at {batch} at once: the end runs with fewer"
        )
    point = Point(
        batch_sequences=batch,
        prompt_tokens=facts.prompt_tokens,
        output_tokens=facts.output_tokens,
        time_s=elapsed * batch / (requests * facts.output_tokens),
        tokens_per_s=rate if rate is not None else tokens / elapsed,
    )
    return SourceRow(record.where, msgspec.structs.replace(point, **layout_of(facts)))


_ENDINGS = (".json", ".jsonl")
_NEEDS = ("gpu_class", "model", "precision", "framework_version", "tp")
_VLLM = Bench("vllm", ("mean_ttft_ms",), "mean_e2el_ms")
_SGLANG = Bench("sglang", ("mean_ttft_ms", "median_ttft_ms"), "mean_e2e_latency_ms")
VLLM_SERVE = Format(
    "vllm-serve", "vLLM `bench serve --save-result`, one JSON a run", _ENDINGS, _NEEDS, _VLLM.read
)
SGLANG_SERVE = Format(
    "sglang-serve", "SGLang `bench_serving --output-file`, JSON lines", _ENDINGS, _NEEDS, _SGLANG.read
)
VLLM_THROUGHPUT = Format(
    "vllm-throughput",
    "vLLM `bench throughput --output-json`",
    _ENDINGS,
    (*_NEEDS, "prompt_tokens", "output_tokens", "concurrency"),
    _read_throughput,
)
