"""verl's metrics: JSON lines (`{"step": …, "data": {…}}` or flat) or a CSV export of a tracker.

`timing_s/*` are seconds of a whole step on all GPUs; `perf/throughput` is tokens/s/GPU;
`perf/max_memory_*_gb` are bytes ÷ 1024³, so GiB whatever the name says. A log does not say the GPU,
the layout, the precision, nor how often the optimizer steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from libra_plan.profiles.importers import training_logs as logs
from libra_plan.profiles.importers.base import (
    BadRow,
    Format,
    ProfileDraft,
    Reading,
    RejectedRow,
    SourceRow,
    draft_of,
    layout_of,
)
from libra_plan.profiles.importers.facts import ImportFacts, demand
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord, records
from libra_plan.profiles.schema import Phase

__all__ = ["FORMAT"]

_WHAT = "a verl log"
_MIB_PER_GB = 1024.0
_MEMORY = {
    "peak_allocated_mib": "perf/max_memory_allocated_gb",
    "peak_reserved_mib": "perf/max_memory_reserved_gb",
}
# role: suffix of the profile, phase, whose model
_ROLES: dict[str, tuple[str, Phase, str]] = {
    "timing_s/update_actor": ("-train", "train", "model"),
    "timing_s/old_log_prob": ("-score", "score", "model"),
    "timing_s/ref": ("-reference", "score", "model"),
    "timing_s/update_critic": ("-critic-train", "train", "critic_model"),
    "timing_s/values": ("-critic-score", "score", "critic_model"),
}


def _read(source: SourceFiles, facts: ImportFacts) -> Reading:
    steps = [_flat(record) for record in records(source)]
    present = {key for record in steps for key in record.fields if record.positive(key) is not None}
    _demand(present, facts, source)
    ranks = logs.data_ranks(facts, source.path)
    found: dict[str, list[SourceRow]] = {}
    rejected, warnings = [], []
    for record in steps:
        try:
            for role, row, warning in _rows(record, facts, ranks, source):
                found.setdefault(role, []).append(row)
                warnings += [warning] if warning else []
        except BadRow as reason:
            rejected.append(RejectedRow(record.where, str(reason)))
    for role in ("timing_s/update_critic", "timing_s/values"):
        if role in present and facts.critic_model is None:
            warnings.append(
                f"{role} is left out: the log does not say the critic's model, add --critic-model"
            )
    named = facts if facts.framework else dataclasses.replace(facts, framework="verl")
    drafts = tuple(_draft(named, role, rows) for role, rows in found.items())
    return Reading(drafts, tuple(rejected), logs.unique(warnings))


def _flat(record: SourceRecord) -> SourceRecord:
    data = record.fields.get("data")
    return SourceRecord(record.where, data) if isinstance(data, dict) else record


def _demand(present: set[str], facts: ImportFacts, source: SourceFiles) -> None:
    needs = ["gpu_class", "model", "precision", "framework_version", "gpus", "tp"]
    if "perf/total_num_tokens" not in present:
        needs.append("samples")
    if present & {"timing_s/update_actor", "timing_s/update_critic"}:
        needs += ["epochs", "mini_batches"]
    if "timing_s/gen" in present:
        needs.append("rollout_tp")
    demand(facts, needs, _WHAT, source.path)


def _work(record: SourceRecord, facts: ImportFacts) -> logs.StepWork:
    prompt, response = record.positive("prompt_length/mean"), record.positive("response_length/mean")
    tokens = record.positive("perf/total_num_tokens")
    if prompt is None or response is None:
        raise BadRow("prompt_length/mean or response_length/mean is missing")
    mean = prompt + response
    samples = float(facts.samples) if facts.samples else None
    if samples is None and tokens is not None:
        samples = tokens / mean
    if samples is None:
        raise BadRow("perf/total_num_tokens is missing")
    if tokens is not None and not 0.95 <= samples * mean / tokens <= 1.25:
        raise BadRow(f"{samples:.0f} samples of {mean:.0f} tokens are not perf/total_num_tokens {tokens:.0f}")
    return logs.StepWork(
        samples=samples,
        prompt_mean=prompt,
        response_mean=response,
        response_max=record.positive("response_length/max"),
        mean=mean,
    )


def _rows(
    record: SourceRecord, facts: ImportFacts, ranks: int, source: SourceFiles
) -> Iterator[tuple[str, SourceRow, str | None]]:
    assert facts.gpus is not None
    work = _work(record, facts)
    copies = {"the mean length": work.mean, "response_length/mean": work.response_mean}
    seconds = record.positive("perf/time_per_step", "timing_s/step")
    logs.check_balance(work.tokens, seconds, record.positive("perf/throughput"), facts.gpus, copies)
    for role, (_, phase, whose) in _ROLES.items():
        if getattr(facts, whose) is None:
            continue
        remembered = _MEMORY if role == "timing_s/update_actor" else {}
        peaks, warning = logs.peaks_mib(record, remembered, _MIB_PER_GB, facts)
        updates = (facts.epochs or 1, facts.mini_batches or 1) if phase == "train" else (1, 1)
        time = record.positive(role)
        row = logs.pass_row(record, time, work, ranks, layout_of(facts), updates=updates, memory=peaks)
        if row is not None:
            yield role, row, warning
    if facts.rollout_tp is not None:
        rollout = logs.rollout_row(record, record.positive("timing_s/gen"), work, facts, source.path)
        if rollout is not None:
            yield "timing_s/gen", rollout, None


def _draft(facts: ImportFacts, role: str, rows: list[SourceRow]) -> ProfileDraft:
    if role == "timing_s/gen":
        return draft_of(facts, "-decode", "decode", rows, logs.ROLLOUT_METHOD, notes=logs.NOTES)
    suffix, phase, whose = _ROLES[role]
    model = facts.critic_model if whose == "critic_model" else None
    return draft_of(facts, suffix, phase, rows, logs.METHOD, model=model, notes=logs.NOTES)


FORMAT = Format("verl", "verl metrics, JSON lines or CSV", (".jsonl", ".csv", ".json"), (), _read)
