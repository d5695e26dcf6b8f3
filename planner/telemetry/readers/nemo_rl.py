"""NeMo-RL's metrics as JSON lines, a tracker's CSV, or `json_dump_tb_logs.py` lines.

Keys as in NeMo-RL 0.4 to 0.6 (`nemo_rl/algorithms/grpo.py`): `timing/train/*`, seconds;
`performance/*_tokens_per_sec_per_gpu`; `train/mean_*_tokens_per_sample`. Of async GRPO:
`train/buffer_size`, trajectories in the replay buffer; `train/avg_trajectory_age`, in policy
versions; `timing/train/exposed_generation` and `timing/train/idle/buffer_starvation`, seconds the
trainer waits for the rollout.
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
    "timing/train/policy_training": "actor",
    "timing/train/generation": "rollout",
    "timing/train/policy_and_reference_logprobs": "reference",
    "timing/train/get_logprobs": "reference",
}
_STEP = "timing/train/total_step_time"
_RATE = "performance/tokens_per_sec_per_gpu"
_WAITS = ("timing/train/idle/buffer_starvation", "timing/train/exposed_generation")


def _read(source: Source, facts: ReaderFacts, rejected: list[Rejected]) -> Iterator[WorkWindow]:
    return step_windows(_steps(source, facts, rejected), facts.task, rejected)


def _steps(source: Source, facts: ReaderFacts, rejected: list[Rejected]) -> Iterator[StepLog]:
    for record in records(source):
        step_s = record.number(_STEP)
        if step_s is None:
            rejected.append(Rejected(record.where, f"no {_STEP}"))
            continue
        total, generated = _tokens(record, facts, step_s)
        buffered = record.number("train/buffer_size")
        waited = record.number(*_WAITS)
        yield StepLog(
            where=record.where,
            step_s=step_s,
            stages=tuple(
                StageTime(role, seconds, generated if role == "rollout" else total)
                for role, seconds in seconds_of(record, ROLES).items()
            ),
            samples=None if facts.samples is None else float(facts.samples),
            queues={} if buffered is None else {"experience": buffered},
            staleness=record.number("train/avg_trajectory_age"),
            waits={} if waited is None else {"actor": waited},
        )


def _tokens(record: Record, facts: ReaderFacts, step_s: float) -> tuple[float | None, float | None]:
    """Give the tokens of a step, all and generated: samples × mean length, else rate × GPUs × seconds."""
    mean = record.positive("train/mean_total_tokens_per_sample")
    written = record.positive("train/mean_gen_tokens_per_sample")
    rate = record.positive(_RATE)
    if mean is not None and facts.samples is not None:
        return mean * facts.samples, None if written is None else written * facts.samples
    if rate is None:
        return None, None
    total = rate * facts.demand_gpus("a NeMo-RL log without --samples") * step_s
    return total, total * written / mean if written and mean else None


READER = Reader("nemo-rl", "NeMo-RL metrics, JSON lines or CSV", (".jsonl", ".csv", ".json"), _read)
