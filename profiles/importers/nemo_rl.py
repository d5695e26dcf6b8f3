"""NeMo-RL's metrics: JSON lines or a CSV export of a tracker.

`timing/train/*` are seconds of a step; `performance/*_tokens_per_sec_per_gpu` are rates per GPU;
`train/mean_total_tokens_per_sample`, `train/mean_gen_tokens_per_sample` and
`train/max_gen_tokens_per_sample` are lengths. `policy_and_reference_logprobs` is one timing over the
policy's and, with a reference, the reference's pass: how many must be stated.
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

__all__ = ["FORMAT"]

_TRAIN = "timing/train/policy_training"
_SCORE = ("timing/train/policy_and_reference_logprobs", "timing/train/get_logprobs")
_GENERATE = "timing/train/generation"
_STEP = "timing/train/total_step_time"
_RATE = "performance/tokens_per_sec_per_gpu"


def _read(source: SourceFiles, facts: ImportFacts) -> Reading:
    steps = list(records(source))
    present = {key for record in steps for key in record.fields if record.positive(key) is not None}
    _demand(present, facts, source)
    ranks = logs.data_ranks(facts, source.path)
    found: dict[str, list[SourceRow]] = {}
    rejected = []
    for record in steps:
        try:
            for role, row in _rows(record, facts, ranks, source):
                found.setdefault(role, []).append(row)
        except BadRow as reason:
            rejected.append(RejectedRow(record.where, str(reason)))
    named = facts if facts.framework else dataclasses.replace(facts, framework="nemo-rl")
    return Reading(tuple(_draft(named, role, rows) for role, rows in found.items()), tuple(rejected))


def _demand(present: set[str], facts: ImportFacts, source: SourceFiles) -> None:
    needs = ["gpu_class", "model", "precision", "framework_version", "gpus", "tp", "samples"]
    if _TRAIN in present:
        needs += ["epochs", "mini_batches"]
    if present & set(_SCORE):
        needs.append("score_passes")
    if _GENERATE in present:
        needs.append("rollout_tp")
    demand(facts, needs, "a NeMo-RL log", source.path)


def _work(record: SourceRecord, facts: ImportFacts) -> logs.StepWork:
    mean = record.positive("train/mean_total_tokens_per_sample")
    generated = record.positive("train/mean_gen_tokens_per_sample")
    if mean is None:
        raise BadRow("train/mean_total_tokens_per_sample is missing")
    if generated is not None and generated >= mean:
        raise BadRow(f"{generated:g} tokens are generated of {mean:g} per sample")
    assert facts.samples is not None
    return logs.StepWork(
        samples=float(facts.samples),
        prompt_mean=None if generated is None else mean - generated,
        response_mean=generated,
        response_max=record.positive("train/max_gen_tokens_per_sample"),
        mean=mean,
    )


def _rows(
    record: SourceRecord, facts: ImportFacts, ranks: int, source: SourceFiles
) -> Iterator[tuple[str, SourceRow]]:
    assert facts.gpus is not None
    work = _work(record, facts)
    copies = {"train/mean_total_tokens_per_sample": work.mean}
    logs.check_balance(work.tokens, record.positive(_STEP), record.positive(_RATE), facts.gpus, copies)
    updates = (facts.epochs or 1, facts.mini_batches or 1)
    train = logs.pass_row(record, record.positive(_TRAIN), work, ranks, layout_of(facts), updates=updates)
    if train is not None:
        yield "train", train
    scored = record.positive(*_SCORE)
    one_pass = None if scored is None else scored / (facts.score_passes or 1)
    score = logs.pass_row(record, one_pass, work, ranks, layout_of(facts))
    if score is not None:
        yield "score", score
    if facts.rollout_tp is not None:
        rollout = logs.rollout_row(record, record.positive(_GENERATE), work, facts, source.path)
        if rollout is not None:
            yield "decode", rollout


def _draft(facts: ImportFacts, role: str, rows: list[SourceRow]) -> ProfileDraft:
    if role == "decode":
        return draft_of(facts, "-decode", "decode", rows, logs.ROLLOUT_METHOD, notes=logs.NOTES)
    return draft_of(
        facts, f"-{role}", "train" if role == "train" else "score", rows, logs.METHOD, notes=logs.NOTES
    )


FORMAT = Format("nemo-rl", "NeMo-RL metrics, JSON lines or CSV", (".jsonl", ".csv", ".json"), (), _read)
