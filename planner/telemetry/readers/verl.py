"""verl's metrics as its file logger or a tracker's CSV has them.

Keys as in verl 0.4 to 0.7 (`verl/trainer/ppo/metric_utils.py`): `timing_s/*`, seconds of a stage of
the step; `perf/total_num_tokens`, prompt and response tokens of the batch; `perf/time_per_step`.
Of the fully async trainer (`fully_async_policy`): `fully_async/total_wait_time`, seconds the trainer
waited; `fully_async/rollouter/version_time` and `active_time`; `fully_async/monitor/queue/*`, queue
lengths. Its `idle_ratio`s are not read: they hold the last pause of a version only (verl issue 6693).
"""

from __future__ import annotations

from collections.abc import Iterator

from libra_plan.planner.telemetry.readers.base import (
    Reader,
    ReaderFacts,
    StageTime,
    StepLog,
    seconds_of,
    step_windows,
)
from libra_plan.planner.telemetry.work_windows import Rejected, WorkWindow
from libra_plan.profiles.importers.records import Record, Source, records

__all__ = ["READER"]

ROLES = {
    "timing_s/update_actor": "actor",
    "timing_s/gen": "rollout",
    "timing_s/old_log_prob": "old-log-prob",
    "timing_s/ref": "reference",
    "timing_s/reward": "reward",
    "timing_s/update_critic": "critic",
    "timing_s/values": "critic-score",
}
_QUEUES = {
    "fully_async/monitor/queue/mq_queue_size": "experience",
    "fully_async/monitor/queue/pending_queue_size": "rollout",
}


def _read(source: Source, facts: ReaderFacts, rejected: list[Rejected]) -> Iterator[WorkWindow]:
    return step_windows(_steps(source, facts, rejected), facts.task, rejected)


def _steps(source: Source, facts: ReaderFacts, rejected: list[Rejected]) -> Iterator[StepLog]:
    for record in records(source):
        data = record.fields.get("data")
        flat = Record(record.where, data) if isinstance(data, dict) else record
        step = _step(flat, facts)
        if step is None:
            rejected.append(Rejected(record.where, "no timing_s/step or perf/time_per_step"))
        else:
            yield step


def _step(record: Record, facts: ReaderFacts) -> StepLog | None:
    step_s = record.number("timing_s/step", "perf/time_per_step")
    if step_s is None:
        return None
    tokens = record.positive("perf/total_num_tokens")
    responses, samples = record.positive("response_length/mean"), _samples(record, facts, tokens)
    generated = responses * samples if responses and samples else None
    stages = tuple(
        StageTime(role, seconds, generated if role == "rollout" else tokens)
        for role, seconds in seconds_of(record, ROLES).items()
    )
    queues = {name: length for key, name in _QUEUES.items() if (length := record.number(key)) is not None}
    waited = record.number("fully_async/total_wait_time")
    return StepLog(
        where=record.where,
        step_s=step_s,
        stages=stages,
        samples=samples,
        queues=queues,
        waits={} if waited is None else {"actor": waited},
    )


def _samples(record: Record, facts: ReaderFacts, tokens: float | None) -> float | None:
    """Give the samples of a step: as stated, else tokens over the mean length."""
    if facts.samples is not None:
        return float(facts.samples)
    prompt, response = record.positive("prompt_length/mean"), record.positive("response_length/mean")
    return tokens / (prompt + response) if tokens and prompt and response else None


READER = Reader("verl", "verl metrics, JSON lines or CSV", (".jsonl", ".csv", ".json"), _read)
