"""NeMo-RL's metrics as JSON lines, a tracker's CSV, or `json_dump_tb_logs.py` lines.

Keys as in NeMo-RL 0.4 to 0.6 (`nemo_rl/algorithms/grpo.py`): `timing/train/*`, seconds;
`performance/*_tokens_per_sec_per_gpu`; `train/mean_*_tokens_per_sample`. Of async GRPO:
`train/buffer_size`, trajectories in the replay buffer; `train/avg_trajectory_age`, in policy
versions; `timing/train/exposed_generation` and `timing/train/idle/buffer_starvation`, seconds the
trainer waits for the rollout.
"""

from __future__ import annotations

from libra_plan.planner.telemetry.readers.base import ReaderFacts, StepLog, records_reader, stages_of, wait_of
from libra_plan.profiles.importers.records import SourceRecord

__all__ = ["READER"]

_ROLES = {
    "timing/train/policy_training": "actor",
    "timing/train/generation": "rollout",
    "timing/train/policy_and_reference_logprobs": "reference",
    "timing/train/get_logprobs": "reference",
}
_STEP = "timing/train/total_step_time"
_RATE = "performance/tokens_per_sec_per_gpu"
_WAITS = ("timing/train/idle/buffer_starvation", "timing/train/exposed_generation")


def _step(record: SourceRecord, facts: ReaderFacts) -> StepLog | None:
    step_s = record.number(_STEP)
    if step_s is None:
        return None
    buffered = record.number("train/buffer_size")
    return StepLog(
        where=record.where,
        step_s=step_s,
        stages=stages_of(record, _ROLES, *_tokens(record, facts, step_s)),
        samples=None if facts.samples is None else float(facts.samples),
        queues={} if buffered is None else {"experience": buffered},
        staleness=record.number("train/avg_trajectory_age"),
        waits=wait_of(record, *_WAITS),
    )


def _tokens(record: SourceRecord, facts: ReaderFacts, step_s: float) -> tuple[float | None, float | None]:
    """Return the tokens of a step, all and generated: samples × mean length, else rate × GPUs × seconds."""
    mean = record.positive("train/mean_total_tokens_per_sample")
    written = record.positive("train/mean_gen_tokens_per_sample")
    rate = record.positive(_RATE)
    if mean is not None and facts.samples is not None:
        return mean * facts.samples, None if written is None else written * facts.samples
    if rate is None:
        return None, None
    total = rate * facts.demand_gpus("a NeMo-RL log without --samples") * step_s
    return total, total * written / mean if written and mean else None


READER = records_reader("nemo-rl", "NeMo-RL metrics, JSON lines or CSV", _step, _STEP)
