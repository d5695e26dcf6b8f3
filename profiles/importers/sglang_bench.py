"""SGLang's `bench_serving --output-file`: one JSON object a line, latencies in ms.

Older versions state neither the mean time to the first token nor a time per token: the median of
the first stands in, and the second follows from the end-to-end latency.
"""

from __future__ import annotations

import dataclasses

from libra_plan.profiles.importers.base import BadRow, Format, Reading, RejectedRow, draft_of, layout_of
from libra_plan.profiles.importers.facts import ImportFacts
from libra_plan.profiles.importers.records import SourceFiles, records
from libra_plan.profiles.importers.serving import METHOD, bench_run, serve_row

__all__ = ["FORMAT"]


def _read(source: SourceFiles, facts: ImportFacts) -> Reading:
    rows, rejected, warnings = [], [], []
    median_only = 0
    for record in records(source):
        run = bench_run(record, ttft=("mean_ttft_ms", "median_ttft_ms"), e2e="mean_e2e_latency_ms")
        try:
            row, notes = serve_row(run, layout_of(facts))
        except BadRow as reason:
            rejected.append(RejectedRow(record.where, str(reason)))
            continue
        rows.append(row)
        warnings += notes
        median_only += record.positive("mean_ttft_ms") is None
    if median_only:
        warnings.append(
            f"{median_only} rows state only the median time to the first token; it is taken as the mean"
        )
    named = facts if facts.framework else dataclasses.replace(facts, framework="sglang")
    return Reading((draft_of(named, "-serve", "serve", rows, METHOD),), tuple(rejected), tuple(warnings))


FORMAT = Format(
    "sglang-serve",
    "SGLang `bench_serving --output-file`, JSON lines",
    (".json", ".jsonl"),
    ("gpu_class", "model", "precision", "framework_version", "tp"),
    _read,
)
