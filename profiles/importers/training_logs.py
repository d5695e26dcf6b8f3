"""Metric logs of RL trainers (verl, NeMo-RL): one record a training step, one point per role and step.

JSON lines (`{"step": …, "data": {…}}` or flat) or a CSV export of a tracker. A log does not say the
GPU, the layout, the precision, nor how often the optimizer steps. Lengths vary inside a step and a log
states their mean: a point stands at samples per rank × mean length. One update of the optimizer is the
step's training time ÷ (epochs × mini-batches), over samples ÷ mini-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from libra_plan.errors import InputError, Where
from libra_plan.profiles.importers.base import (
    BadRow,
    Format,
    ProfileDraft,
    Reading,
    SourceRow,
    draft_of,
    gpu_memory_mib,
    layout_of,
    usable,
)
from libra_plan.profiles.importers.facts import ImportFacts, demand
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord, records
from libra_plan.profiles.physics import BALANCE
from libra_plan.profiles.schema import Method, Phase, Point

__all__ = ["NEMO_RL", "VERL"]

_METHOD = Method(tokens_counted="input", throughput_basis="total")
_ROLLOUT_METHOD = Method(
    tokens_counted="output",
    throughput_basis="total",
    tpot_definition="seconds of generation ÷ longest response: the mean step, all samples started at once",
)
_NOTES = "from a training log: lengths vary inside a step, points stand at their mean"
_MIB_PER_GB = 1024.0  # verl divides bytes by 1024³ and calls it GB
_MOST_WARNINGS = 20


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The work of one training step: samples, and mean and longest lengths in tokens.

    `copies` are numbers of the record that have been printed in place of the step's time, by name.
    """

    samples: float
    prompt_mean: float | None
    response_mean: float | None
    response_max: float | None
    mean: float
    copies: Mapping[str, float | None]

    @property
    def tokens(self) -> float:
        """The tokens of the step."""
        return self.samples * self.mean


@dataclass(frozen=True)
class _Pass:
    """A role's pass over the step's samples: its timings, the suffix of the profile, and the phase.

    `model`: the fact that names its model. `memory`: whether the log's peaks are this role's. `passes`:
    the fact that says how many passes its timing covers.
    """

    timings: tuple[str, ...]
    suffix: str
    phase: Phase
    model: str = "model"
    memory: bool = False
    passes: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Log:
    """The keys of one trainer's metrics. `memory` maps columns of points to keys in GiB."""

    framework: str
    what: str
    passes: tuple[_Pass, ...]
    generation: str
    step: tuple[str, ...]
    rate: str
    memory: Mapping[str, str]
    needs: Callable[[set[str]], list[str]]
    work: Callable[[SourceRecord, ImportFacts], _Work]

    def read(self, source: SourceFiles, facts: ImportFacts) -> Reading:
        """Read every step of a log; one draft per role found."""
        steps = [_flat(record) for record in records(source)]
        present = {key for record in steps for key in record.fields if record.positive(key) is not None}
        self._demand(present, facts, source)
        ranks = _data_ranks(facts, source.path)
        found: dict[str, tuple[_Pass | None, list[SourceRow]]] = {}
        warnings: list[str] = []

        def keep(record: SourceRecord) -> None:
            for each, row in self._rows(record, facts, ranks, source, warnings):
                found.setdefault(each.suffix if each else "-decode", (each, []))[1].append(row)

        _, rejected = usable(steps, keep)
        warnings += [
            f"{key} is left out: the log does not say the critic's model, add --critic-model"
            for each in self.passes
            for key in each.timings
            if key in present and each.model == "critic_model" and facts.critic_model is None
        ]
        kept = list(dict.fromkeys(warnings))
        more = [f"and {len(kept) - _MOST_WARNINGS} more"] if len(kept) > _MOST_WARNINGS else []
        drafts = tuple(self._draft(facts, each, rows) for each, rows in found.values())
        return Reading(drafts, rejected, (*kept[:_MOST_WARNINGS], *more))

    def _demand(self, present: set[str], facts: ImportFacts, source: SourceFiles) -> None:
        needs = ["gpu_class", "model", "precision", "framework_version", "gpus", "tp", *self.needs(present)]
        if any(key in present for each in self.passes if each.phase == "train" for key in each.timings):
            needs += ["epochs", "mini_batches"]
        if self.generation in present:
            needs.append("rollout_tp")
        demand(facts, needs, self.what, source.path)

    def _rows(
        self, record: SourceRecord, facts: ImportFacts, ranks: int, source: SourceFiles, warnings: list[str]
    ) -> Iterator[tuple[_Pass | None, SourceRow]]:
        assert facts.gpus is not None
        work = self.work(record, facts)
        _check_balance(work, record.positive(*self.step), record.positive(self.rate), facts.gpus)
        for each in self.passes:
            seconds = record.positive(*each.timings)
            if seconds is None or getattr(facts, each.model) is None:
                continue
            peaks = _peaks_mib(record, self.memory, facts, warnings) if each.memory else {}
            point = _pass_point(each, seconds, work, facts, ranks)
            yield each, SourceRow(record.where, msgspec.structs.replace(point, **peaks))
        point_of_rollout = _rollout_point(record.positive(self.generation), work, facts, source.path)
        if point_of_rollout is not None:
            yield None, SourceRow(record.where, point_of_rollout)

    def _draft(self, facts: ImportFacts, each: _Pass | None, rows: list[SourceRow]) -> ProfileDraft:
        own = self.framework
        if each is None:
            return draft_of(facts, "-decode", "decode", rows, _ROLLOUT_METHOD, framework=own, notes=_NOTES)
        model = getattr(facts, each.model)
        return draft_of(
            facts, each.suffix, each.phase, rows, _METHOD, framework=own, model=model, notes=_NOTES
        )


def _flat(record: SourceRecord) -> SourceRecord:
    data = record.fields.get("data")
    return SourceRecord(record.where, data) if isinstance(data, dict) else record


def _data_ranks(facts: ImportFacts, source: str) -> int:
    """Return the data-parallel ranks of the trainer: GPUs ÷ (tp·pp·cp)."""
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


def _check_balance(work: _Work, seconds: float | None, rate_per_gpu: float | None, gpus: int) -> None:
    """Refuse a step whose tokens/s/GPU × GPUs × seconds is not its tokens."""
    if seconds is None or rate_per_gpu is None:
        return
    ratio = rate_per_gpu * gpus * seconds / work.tokens
    if BALANCE[0] <= ratio <= BALANCE[1]:
        return
    said = f"tokens/s/GPU × {gpus} GPUs × {seconds:g} s is {ratio:.3g} of the {work.tokens:.0f} tokens "
    said += "of the step"
    for name, value in work.copies.items():
        if value is not None and abs(seconds / value - 1) < 1e-3:
            said += f"; the time equals {name}: it was copied"
    raise BadRow(said)


def _pass_point(each: _Pass, seconds: float, work: _Work, facts: ImportFacts, ranks: int) -> Point:
    """Make the point of one role's pass over the step's samples."""
    trains = each.phase == "train"
    mini_batches = (facts.mini_batches or 1) if trains else 1
    repeats = mini_batches * (facts.epochs or 1) if trains else 1
    if each.passes is not None:
        repeats = getattr(facts, each.passes) or 1
    batch = max(round(work.samples / ranks / mini_batches), 1)
    length = max(round(work.mean), 1)
    share = batch * ranks * mini_batches * length / work.tokens
    time_s = seconds / repeats * share  # the point is in whole samples and tokens
    point = Point(
        batch_sequences=batch,
        seq_len_tokens=length,
        dp=ranks,
        time_s=time_s,
        tokens_per_s=batch * ranks * length / time_s,
    )
    return msgspec.structs.replace(point, **layout_of(facts))


def _rollout_point(seconds: float | None, work: _Work, facts: ImportFacts, source: str) -> Point | None:
    """Make the decode point of a generation; None when the log does not allow it.

    When all samples start at once there are as many steps as tokens in the longest response. A
    step is affine in batch and context, so its mean stands at the mean batch, ΣL ÷ longest per
    engine, and at the mean context of the tokens generated, at least prompt + L/2.
    """
    if facts.rollout_tp is None or not seconds:
        return None
    if not (work.prompt_mean and work.response_mean and work.response_max):
        return None
    gpus = facts.rollout_gpus or facts.gpus or 1
    if gpus % facts.rollout_tp:
        raise InputError(
            "--rollout-tp does not divide the GPUs that generate",
            got=f"{gpus} GPUs, tp {facts.rollout_tp}",
            allowed="a divisor",
            way_out="state --rollout-gpus when not all GPUs generate",
            where=Where(source),
        )
    batch = work.samples * work.response_mean / work.response_max / (gpus // facts.rollout_tp)
    if round(batch) < 1 or not BALANCE[0] <= batch / round(batch) <= BALANCE[1]:
        raise BadRow(f"{batch:.2f} samples run per engine on average: no whole number to fit at")
    return Point(
        batch_sequences=round(batch),
        seq_len_tokens=max(round(work.prompt_mean + work.response_mean / 2), 1),
        tp=facts.rollout_tp,
        time_s=seconds / work.response_max,
        tokens_per_s=batch * work.response_max / seconds,
    )


def _peaks_mib(
    record: SourceRecord, keys: Mapping[str, str], facts: ImportFacts, warnings: list[str]
) -> dict[str, float]:
    """Read peak memory; a peak above the GPU's memory is left out with a warning.

    Pooled allocators of a colocated engine are counted by the trainer's, as if memory were there twice.
    """
    limit = gpu_memory_mib(facts, str(facts.gpu_class))
    found = {column: record.positive(key) for column, key in keys.items()}
    peaks = {column: value * _MIB_PER_GB for column, value in found.items() if value is not None}
    highest = max(peaks.values(), default=0.0)
    if limit is None or highest <= limit:
        return peaks
    said = f"peak memory {highest:.0f} MiB is above the GPU's {limit:.0f} MiB: left out"
    warnings.append(f"{record.where}: {said}")
    return {}


# ---------------------------------------------------------------- the trainers


def _verl_work(record: SourceRecord, facts: ImportFacts) -> _Work:
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
    return _Work(
        samples=samples,
        prompt_mean=prompt,
        response_mean=response,
        response_max=record.positive("response_length/max"),
        mean=mean,
        copies={"the mean length": mean, "response_length/mean": response},
    )


def _nemo_work(record: SourceRecord, facts: ImportFacts) -> _Work:
    mean = record.positive("train/mean_total_tokens_per_sample")
    generated = record.positive("train/mean_gen_tokens_per_sample")
    if mean is None:
        raise BadRow("train/mean_total_tokens_per_sample is missing")
    if generated is not None and generated >= mean:
        raise BadRow(f"{generated:g} tokens are generated of {mean:g} per sample")
    assert facts.samples is not None
    return _Work(
        samples=float(facts.samples),
        prompt_mean=None if generated is None else mean - generated,
        response_mean=generated,
        response_max=record.positive("train/max_gen_tokens_per_sample"),
        mean=mean,
        copies={"train/mean_total_tokens_per_sample": mean},
    )


_NEMO_SCORE = ("timing/train/policy_and_reference_logprobs", "timing/train/get_logprobs")
_VERL = _Log(
    framework="verl",
    what="a verl log",
    passes=(
        _Pass(("timing_s/update_actor",), "-train", "train", memory=True),
        _Pass(("timing_s/old_log_prob",), "-score", "score"),
        _Pass(("timing_s/ref",), "-reference", "score"),
        _Pass(("timing_s/update_critic",), "-critic-train", "train", "critic_model"),
        _Pass(("timing_s/values",), "-critic-score", "score", "critic_model"),
    ),
    generation="timing_s/gen",
    step=("perf/time_per_step", "timing_s/step"),
    rate="perf/throughput",
    memory={
        "peak_allocated_mib": "perf/max_memory_allocated_gb",
        "peak_reserved_mib": "perf/max_memory_reserved_gb",
    },
    needs=lambda present: [] if "perf/total_num_tokens" in present else ["samples"],
    work=_verl_work,
)
_NEMO_RL = _Log(
    framework="nemo-rl",
    what="a NeMo-RL log",
    passes=(
        _Pass(("timing/train/policy_training",), "-train", "train"),
        _Pass(_NEMO_SCORE, "-score", "score", passes="score_passes"),  # the policy's and the reference's
    ),
    generation="timing/train/generation",
    step=("timing/train/total_step_time",),
    rate="performance/tokens_per_sec_per_gpu",
    memory={},
    needs=lambda present: ["samples", *(["score_passes"] if present & set(_NEMO_SCORE) else [])],
    work=_nemo_work,
)
_ENDINGS = (".jsonl", ".csv", ".json")
VERL = Format("verl", "verl metrics, JSON lines or CSV", _ENDINGS, (), _VERL.read)
NEMO_RL = Format("nemo-rl", "NeMo-RL metrics, JSON lines or CSV", _ENDINGS, (), _NEMO_RL.read)
