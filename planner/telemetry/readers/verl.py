"""verl's metrics as its file logger or a tracker's CSV has them.

Keys as in verl 0.4 to 0.7 (`verl/trainer/ppo/metric_utils.py`): `timing_s/*`, seconds of a stage of
the step; `perf/total_num_tokens`, prompt and response tokens of the batch; `perf/time_per_step`.
Of the fully async trainer (`fully_async_policy`): `fully_async/total_wait_time`, seconds the trainer
waited; `fully_async/rollouter/version_time` and `active_time`; `fully_async/monitor/queue/*`, queue
lengths. Its `idle_ratio`s are not read: they hold the last pause of a version only (verl issue 6693).
"""

from __future__ import annotations

from libra_plan.planner.telemetry.readers.base import ReaderFacts, StepLog, records_reader, stages_of, wait_of
from libra_plan.profiles.importers.records import SourceRecord

__all__ = ["READER"]

_ROLES = {
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


def _step(record: SourceRecord, facts: ReaderFacts) -> StepLog | None:
    data = record.fields.get("data")
    record = SourceRecord(record.where, data) if isinstance(data, dict) else record
    step_s = record.number("timing_s/step", "perf/time_per_step")
    if step_s is None:
        return None
    tokens = record.positive("perf/total_num_tokens")
    prompt, response = record.positive("prompt_length/mean"), record.positive("response_length/mean")
    samples = None if facts.samples is None else float(facts.samples)
    if samples is None and tokens and prompt and response:
        samples = tokens / (prompt + response)
    generated = response * samples if response and samples else None
    return StepLog(
        where=record.where,
        step_s=step_s,
        stages=stages_of(record, _ROLES, tokens, generated),
        samples=samples,
        queues={name: length for key, name in _QUEUES.items() if (length := record.number(key)) is not None},
        waits=wait_of(record, "fully_async/total_wait_time"),
    )


READER = records_reader(
    "verl", "verl metrics, JSON lines or CSV", _step, "timing_s/step or perf/time_per_step"
)
