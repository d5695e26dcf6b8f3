"""Metric logs of RL trainers: one record a training step, one point per role and step.

Lengths vary inside a step and a log states their mean: a point stands at samples per rank × mean
length. One update of the optimizer is the step's training time ÷ (epochs × mini-batches), over
samples ÷ mini-batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from libra_plan.errors import InputError, Where
from libra_plan.profiles.importers.base import BadRow, SourceRow, gpu_memory_mib
from libra_plan.profiles.importers.facts import ImportFacts
from libra_plan.profiles.importers.records import SourceRecord
from libra_plan.profiles.physics import BALANCE
from libra_plan.profiles.schema import Method, Point

__all__ = ["METHOD", "ROLLOUT_METHOD", "StepWork", "check_balance", "data_ranks", "pass_row", "rollout_row"]

METHOD = Method(tokens_counted="input", throughput_basis="total")
ROLLOUT_METHOD = Method(
    tokens_counted="output",
    throughput_basis="total",
    tpot_definition="seconds of generation ÷ longest response: the mean step, all samples started at once",
)
NOTES = "from a training log: lengths vary inside a step, points stand at their mean"


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """The work of one training step: samples, and mean and longest lengths in tokens."""

    samples: float
    prompt_mean: float | None
    response_mean: float | None
    response_max: float | None
    mean: float

    @property
    def tokens(self) -> float:
        """Count the tokens of the step."""
        return self.samples * self.mean


def data_ranks(facts: ImportFacts, source: str) -> int:
    """Give the data-parallel ranks of the trainer: GPUs ÷ (tp·pp·cp)."""
    assert facts.gpus is not None
    size = (facts.tp or 1) * (facts.pp or 1) * (facts.cp or 1)
    if facts.gpus % size:
        raise InputError(
            "the layout does not divide the GPUs of the run",
            got=f"{facts.gpus} GPUs for replicas of {size}",
            allowed=f"a multiple of {size}",
            way_out="state --gpus of the whole run, and --tp, --pp and --cp of the trainer",
            where=Where(source),
        )
    return facts.gpus // size


def check_balance(
    tokens: float,
    seconds: float | None,
    rate_per_gpu: float | None,
    gpus: int,
    copied_from: Mapping[str, float | None],
) -> None:
    """Refuse a step whose tokens/s/GPU × GPUs × seconds is not its tokens.

    `copied_from` are numbers of the record that have been printed in place of the step's time.
    """
    if seconds is None or rate_per_gpu is None:
        return
    ratio = rate_per_gpu * gpus * seconds / tokens
    if BALANCE[0] <= ratio <= BALANCE[1]:
        return
    said = f"tokens/s/GPU × {gpus} GPUs × {seconds:g} s is {ratio:.3g} of the {tokens:.0f} tokens of the step"
    for name, value in copied_from.items():
        if value is not None and abs(seconds / value - 1) < 1e-3:
            said += f"; the time equals {name}: it was copied"
    raise BadRow(said)


def pass_row(
    record: SourceRecord,
    seconds: float | None,
    work: StepWork,
    ranks: int,
    layout: Mapping[str, int],
    *,
    updates: tuple[int, int] = (1, 1),
    memory: Mapping[str, float] | None = None,
) -> SourceRow | None:
    """Make the row of one role's pass over the step's samples; None when the log has no time for it.

    `updates`: epochs and mini-batches. `memory`: peaks in MiB by column.
    """
    if seconds is None or seconds <= 0:
        return None
    epochs, mini_batches = updates
    batch = max(round(work.samples / ranks / mini_batches), 1)
    length = max(round(work.mean), 1)
    share = batch * ranks * mini_batches * length / work.tokens
    time_s = seconds / (epochs * mini_batches) * share  # the point is in whole samples and tokens
    point = Point(
        batch_sequences=batch,
        seq_len_tokens=length,
        dp=ranks,
        time_s=time_s,
        tokens_per_s=batch * ranks * length / time_s,
    )
    return SourceRow(record.where, msgspec.structs.replace(point, **layout, **dict(memory or {})))


def rollout_row(
    record: SourceRecord, seconds: float | None, work: StepWork, facts: ImportFacts, source: str
) -> SourceRow | None:
    """Make the decode point of a generation; None when the log does not allow it.

    When all samples start at once there are as many steps as tokens in the longest response. A
    step is affine in batch and context, so its mean stands at the mean batch, ΣL ÷ longest per
    engine, and at the mean context of the tokens generated, at least prompt + L/2.
    """
    if not seconds or not (work.prompt_mean and work.response_mean and work.response_max):
        return None
    assert facts.rollout_tp is not None
    gpus = facts.rollout_gpus or facts.gpus or 1
    if gpus % facts.rollout_tp:
        raise InputError(
            "--rollout-tp does not divide the GPUs that generate",
            got=f"{gpus} GPUs, tp {facts.rollout_tp}",
            allowed="a divisor",
            way_out="state --rollout-gpus when not all GPUs generate",
            where=Where(source),
        )
    engines = gpus // facts.rollout_tp
    batch = work.samples * work.response_mean / work.response_max / engines
    if round(batch) < 1 or not BALANCE[0] <= batch / round(batch) <= BALANCE[1]:
        raise BadRow(f"{batch:.2f} samples run per engine on average: no whole number to fit at")
    point = Point(
        batch_sequences=round(batch),
        seq_len_tokens=max(round(work.prompt_mean + work.response_mean / 2), 1),
        tp=facts.rollout_tp,
        time_s=seconds / work.response_max,
        tokens_per_s=batch * work.response_max / seconds,
    )
    return SourceRow(record.where, point)


def peaks_mib(
    record: SourceRecord, names: Mapping[str, str], mib_per_unit: float, facts: ImportFacts
) -> tuple[dict[str, float], str | None]:
    """Read peak memory; above the GPU's memory it is nobody's demand and is left out, with a warning.

    Pooled allocators of a colocated engine are counted by the trainer's, as if memory were there twice.
    """
    limit = gpu_memory_mib(facts, str(facts.gpu_class))
    found = {column: record.positive(name) for column, name in names.items()}
    peaks = {column: value * mib_per_unit for column, value in found.items() if value is not None}
    highest = max(peaks.values(), default=0.0)
    if limit is not None and highest > limit:
        return (
            {},
            f"{record.where}: peak memory {highest:.0f} MiB is above the GPU's {limit:.0f} MiB: left out",
        )
    return peaks, None


def unique(warnings: Sequence[str], most: int = 20) -> tuple[str, ...]:
    """Keep each warning once, and not more than a page of them."""
    kept = list(dict.fromkeys(warnings))
    more = [f"and {len(kept) - most} more"] if len(kept) > most else []
    return (*kept[:most], *more)
