"""slime's metrics: its log, or JSON lines of the same keys.

The log has lines like `… perf 3: {'perf/rollout_time': 98.6, …}`, two of `perf` and one of `rollout`
a step (`slime/utils/train_metric_utils.py`, `slime/ray/rollout.py`, slime 0.1 to 0.2). Keys:
`perf/step_time`, seconds, of which `perf/train_wait_time` were spent waiting for the rollout;
`perf/actor_train_time`, `perf/log_probs_time`, `perf/ref_log_probs_time`, `perf/rollout_time`;
`perf/actor_train_tok_per_s`, of all ranks; `perf/tokens_per_gpu_per_sec`, of the rollout's GPUs;
`rollout/response_lengths` and `rollout/total_lengths`, means; `rollout/fully_async/avg_staleness`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from libra_plan.planner.telemetry.readers.base import (
    Reader,
    ReaderFacts,
    StageTime,
    StepLog,
    step_windows,
    wait_of,
)
from libra_plan.planner.telemetry.work_windows import SkippedRecord, WorkWindow
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord, json_records

__all__ = ["READER"]

_LINE = re.compile(r"\b(?:perf|rollout) (\d{1,15}): (\{.*\})\s*$")
_NO_NUMBER = re.compile(r"(?<![\w'])-?(?:nan|inf)\b")
_TRAIN, _STEP = "perf/actor_train_time", "perf/step_time"


def _read(source: SourceFiles, facts: ReaderFacts, left_out: list[SkippedRecord]) -> Iterator[WorkWindow]:
    steps = (_step(record, facts) for record in _whole_steps(source, left_out))
    return step_windows(steps, facts.task, left_out)


def _whole_steps(source: SourceFiles, left_out: list[SkippedRecord]) -> Iterator[SourceRecord]:
    """Join what was logged of each rollout; one that was not trained on yet is left out."""
    joined: dict[int, dict[str, Any]] = {}
    places: dict[int, str] = {}
    for name, text in source.texts:
        for number, where, fields in _logged(name, text, left_out):
            joined.setdefault(number, {}).update(fields)
            places[number] = where
    for number in sorted(joined):
        record = SourceRecord(places[number], joined[number])
        if record.number(_STEP) is None:
            left_out.append(SkippedRecord(places[number], f"rollout {number} has no {_STEP}"))
        else:
            yield record


def _logged(name: str, text: str, left_out: list[SkippedRecord]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    if name.endswith((".jsonl", ".json")):
        for number, record in enumerate(json_records(name, text)):
            step = record.number("rollout/step", "step")
            yield number if step is None else int(step), record.where, dict(record.fields)
        return
    for line, entry in enumerate(text.splitlines(), start=1):
        found = _LINE.search(entry)
        if found is None:
            continue
        where = f"{name}:{line}"
        try:
            fields = ast.literal_eval(_NO_NUMBER.sub("None", found[2]))
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            left_out.append(SkippedRecord(where, "not a dictionary of numbers"))
            continue
        yield int(found[1]), where, fields


def _step(record: SourceRecord, facts: ReaderFacts) -> StepLog:
    step_s = record.number(_STEP) or 0.0
    train_s, rollout_s = record.positive(_TRAIN), record.positive("perf/rollout_time")
    rate = record.positive("perf/actor_train_tok_per_s")
    tokens = rate * train_s if rate and train_s else None
    mean, response = record.positive("rollout/total_lengths"), record.positive("rollout/response_lengths")
    samples = None if facts.samples is None else float(facts.samples)
    if samples is None and tokens and mean:
        samples = tokens / mean
    generated = response * samples if response and samples else None
    per_gpu = record.positive("perf/tokens_per_gpu_per_sec")
    if generated is None and per_gpu and rollout_s and facts.gpus is not None:
        generated = per_gpu * facts.gpus * rollout_s
    stages = (
        ("actor", train_s, tokens),
        ("rollout", rollout_s, generated),
        ("old-log-prob", record.positive("perf/log_probs_time"), tokens),
        ("reference", record.positive("perf/ref_log_probs_time"), tokens),
    )
    return StepLog(
        where=record.where,
        step_s=step_s,
        stages=tuple(StageTime(role, seconds, count) for role, seconds, count in stages if seconds),
        samples=samples,
        staleness=record.number("rollout/fully_async/avg_staleness"),
        waits=wait_of(record, "perf/train_wait_time"),
    )


READER = Reader(
    "slime", "slime's log, or its metrics as JSON lines", (".log", ".txt", ".jsonl", ".json"), _read
)
