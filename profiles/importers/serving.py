"""Serving benchmarks: from one run's totals and latencies to a point of phase `serve`.

Concurrency is what was in flight on average, completed ÷ duration × end-to-end latency (Little's
law), compared with the cap the run was given. Seconds per output token are (e2e − ttft) ÷
(output − 1): every token after the first. Where a run states end-to-end latency and a time per
token that does not fit it, the end-to-end latency is believed: two definitions are in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from libra_plan.profiles.importers.base import BadRow, SourceRow
from libra_plan.profiles.importers.records import SourceRecord
from libra_plan.profiles.physics import BALANCE
from libra_plan.profiles.schema import Method, Point

__all__ = ["METHOD", "ServeRun", "bench_run", "serve_row"]

TPOT_DEFINITION = "(e2e-ttft)/(out-1)"
METHOD = Method(tokens_counted="output", throughput_basis="total", tpot_definition=TPOT_DEFINITION)
_HELD = 0.95
_QUEUED = 0.2
_DEFINITIONS_DIFFER = 0.1


@dataclass(frozen=True, kw_only=True)
class ServeRun:
    """Totals and mean latencies of one run; None is not stated."""

    where: str
    completed: float | None
    duration_s: float | None
    input_tokens: float | None
    output_tokens: float | None
    output_tokens_per_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float | None
    cap: float | None


def bench_run(record: SourceRecord, *, ttft: Sequence[str], e2e: str) -> ServeRun:
    """Read the totals (s, tokens) and mean latencies (ms) that vLLM's and SGLang's benches both write.

    `ttft` names the keys of the time to the first token, the first stated one counts; `e2e` the key
    of the end-to-end latency.
    """

    def seconds(*names: str) -> float | None:
        value = record.positive(*names)
        return None if value is None else value / 1e3

    return ServeRun(
        where=record.where,
        completed=record.positive("completed"),
        duration_s=record.positive("duration"),
        input_tokens=record.positive("total_input_tokens"),
        output_tokens=record.positive("total_output_tokens"),
        output_tokens_per_s=record.positive("output_throughput"),
        ttft_s=seconds(*ttft),
        tpot_s=seconds("mean_tpot_ms"),
        e2e_s=seconds(e2e),
        cap=record.positive("max_concurrency"),
    )


def serve_row(
    run: ServeRun, layout: Mapping[str, int], repeats: int | None = None
) -> tuple[SourceRow, list[str]]:
    """Make the row of one run and what is to be known about it; raise BadRow when it is of no use."""
    completed, duration = _known(run.completed, "completed"), _known(run.duration_s, "duration")
    outputs = _known(run.output_tokens, "total_output_tokens")
    prompt = round(_known(run.input_tokens, "total_input_tokens") / completed)
    output, ttft = outputs / completed, _known(run.ttft_s, "the time to the first token")
    if output < 2:
        raise BadRow(f"{output:.1f} tokens per request: no token follows the first")
    rate = run.output_tokens_per_s if run.output_tokens_per_s is not None else outputs / duration
    balance = rate * duration / outputs
    if not BALANCE[0] <= balance <= BALANCE[1]:
        raise BadRow(f"output tokens/s times seconds is {balance:.3g} of the output tokens stated")
    e2e, tpot, notes = _latencies(run, ttft, output)
    batch, more = _concurrency(run, completed / duration * e2e, ttft / e2e)
    point = Point(
        batch_sequences=batch,
        prompt_tokens=max(prompt, 1),
        output_tokens=round(output),
        time_s=tpot,
        ttft_s=ttft,
        tokens_per_s=rate,
        repeats=repeats,
    )
    return SourceRow(run.where, msgspec.structs.replace(point, **layout)), [
        f"{run.where}: {note}" for note in (*notes, *more)
    ]


def _known(value: float | None, name: str) -> float:
    if value is None or value <= 0:
        raise BadRow(f"{name} is missing or not above 0")
    return value


def _latencies(run: ServeRun, ttft: float, output: float) -> tuple[float, float, list[str]]:
    """Give end-to-end seconds, seconds per token after the first, and what was odd."""
    if run.e2e_s is None:
        tpot = _known(run.tpot_s, "the time per output token")
        return ttft + (output - 1) * tpot, tpot, []
    if run.e2e_s <= ttft:
        raise BadRow(f"the first token comes after {ttft:.4g} s, the last after {run.e2e_s:.4g} s")
    tpot = (run.e2e_s - ttft) / (output - 1)
    if run.tpot_s is None or abs(run.tpot_s / tpot - 1) <= _DEFINITIONS_DIFFER:
        return run.e2e_s, tpot, []
    said = f"the time per token stated, {run.tpot_s:.4g} s, is not {tpot:.4g} s = {TPOT_DEFINITION}"
    if abs(run.tpot_s * output / run.e2e_s - 1) <= 0.02:
        said += " but e2e/out, prefill included"
    return run.e2e_s, tpot, [f"{said}; the latter is taken"]


def _concurrency(run: ServeRun, in_flight: float, waiting: float) -> tuple[int, list[str]]:
    if run.cap is not None and _HELD <= in_flight / run.cap <= BALANCE[1]:
        return round(run.cap), []
    if run.cap is None and waiting > _QUEUED:
        raise BadRow(
            f"the first token takes {waiting:.0%} of a request: with no cap on concurrency requests queue, "
            "and how many ran at once is unknown"
        )
    batch = max(round(in_flight), 1)
    if not BALANCE[0] <= in_flight / batch <= BALANCE[1]:
        raise BadRow(f"{in_flight:.2f} requests in flight on average is no whole number to fit at")
    if run.cap is None:
        return batch, []
    return batch, [f"{in_flight:.1f} requests were in flight on average, not {run.cap:.0f}: taken as {batch}"]
