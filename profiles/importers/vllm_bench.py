"""vLLM's `bench serve --save-result` and `bench throughput --output-json`.

`bench serve`: totals, `request_rate`, `max_concurrency` and latencies in ms. `bench throughput`:
`elapsed_time`, `num_requests`, `total_num_tokens`, `tokens_per_second`, the last two over prompt
and output tokens. Neither says on which GPU, layout, precision or version it ran.
"""

from __future__ import annotations

import dataclasses

import msgspec

from libra_plan.profiles.importers.base import (
    BadRow,
    Format,
    Reading,
    RejectedRow,
    SourceRow,
    draft_of,
    layout_of,
)
from libra_plan.profiles.importers.facts import ImportFacts
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord, records
from libra_plan.profiles.importers.serving import METHOD, bench_run, serve_row
from libra_plan.profiles.physics import BALANCE
from libra_plan.profiles.schema import Method, Point

__all__ = ["SERVE", "THROUGHPUT"]

_NEEDS = ("gpu_class", "model", "precision", "framework_version", "tp")
_FULL_WAVES = 4  # with fewer, the last, part-filled wave of requests weighs in


def _read_serve(source: SourceFiles, facts: ImportFacts) -> Reading:
    rows, rejected, warnings = [], [], []
    for record in records(source):
        run = bench_run(record, ttft=("mean_ttft_ms",), e2e="mean_e2el_ms")
        try:
            row, notes = serve_row(run, layout_of(facts))
        except BadRow as reason:
            rejected.append(RejectedRow(record.where, str(reason)))
            continue
        rows.append(row)
        warnings += notes
    draft = draft_of(_vllm(facts), "-serve", "serve", rows, METHOD)
    return Reading((draft,), tuple(rejected), tuple(warnings))


def _vllm(facts: ImportFacts) -> ImportFacts:
    return facts if facts.framework else dataclasses.replace(facts, framework="vllm")


def _read_throughput(source: SourceFiles, facts: ImportFacts) -> Reading:
    rows, rejected, warnings = [], [], []
    for record in records(source):
        try:
            row, note = _throughput_row(record, facts)
        except BadRow as reason:
            rejected.append(RejectedRow(record.where, str(reason)))
            continue
        rows.append(row)
        warnings += [note] if note else []
    method = Method(
        tokens_counted="input+output",
        throughput_basis="total",
        tpot_definition="elapsed*concurrency/output tokens",
    )
    notes = "time per output token includes the prefill that was done meanwhile"
    return Reading(
        (draft_of(_vllm(facts), "-throughput", "serve", rows, method, notes=notes),),
        tuple(rejected),
        tuple(warnings),
    )


def _throughput_row(record: SourceRecord, facts: ImportFacts) -> tuple[SourceRow, str | None]:
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
    point = Point(
        batch_sequences=batch,
        prompt_tokens=facts.prompt_tokens,
        output_tokens=facts.output_tokens,
        time_s=elapsed * batch / (requests * facts.output_tokens),
        tokens_per_s=rate if rate is not None else tokens / elapsed,
    )
    point = msgspec.structs.replace(point, **layout_of(facts))
    few = batch < requests < _FULL_WAVES * batch
    note = (
        f"{record.where}: {requests:.0f} requests at {batch} at once: the end runs with fewer"
        if few
        else None
    )
    return SourceRow(record.where, point), note


SERVE = Format(
    "vllm-serve", "vLLM `bench serve --save-result`, one JSON a run", (".json", ".jsonl"), _NEEDS, _read_serve
)
THROUGHPUT = Format(
    "vllm-throughput",
    "vLLM `bench throughput --output-json`",
    (".json", ".jsonl"),
    (*_NEEDS, "prompt_tokens", "output_tokens", "concurrency"),
    _read_throughput,
)
