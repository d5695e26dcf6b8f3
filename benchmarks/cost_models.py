"""Print how well the cost models predict groups they have not seen, beside the goal of each.

    python benchmarks/cost_models.py [--data DIR] [--check] [--rows N]

The H200 rows come from the shipped profiles. DIR holds published tables (aic_silicon_h100_h200.csv,
llm_foundry_mpt_train.csv, torchtitan_llama3_train.csv); a row whose table is absent says "not run".
With --check the exit code is 1 when a goal that was measured is missed.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from left_out_models import HEADER, table
from predict_speed import report

from libra_plan.models.costs.base import places_of
from libra_plan.models.curves.curve import LEAST_POINTS, Curve, CurveSample, Recipe, fit_curve, fit_plain
from libra_plan.models.curves.errors import Errors, errors_of
from libra_plan.models.curves.layouts import TIME
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.priors.models import prior_for
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_profile, shipped_folder

LEAST_SWEEP = 4


@dataclass(frozen=True)
class Row:
    """One goal: limits in %, what was measured, over how many predictions."""

    name: str
    goal: Mapping[str, float]
    got: Mapping[str, float] | None
    points: int = 0

    def missed(self) -> bool:
        if self.got is None:
            return False
        return any(
            self.got[key] < limit if key == "covered" else self.got[key] > limit
            for key, limit in self.goal.items()
        )

    def __str__(self) -> str:
        if self.got is None:
            return f"{self.name:58} not run"
        said = ", ".join(
            f"{key} {self.got[key]:.2f} % ({'≥' if key == 'covered' else '≤'} {limit:g})"
            for key, limit in self.goal.items()
        )
        return f"{self.name:58} {'MISSED' if self.missed() else 'met':6} {said}; {self.points} predictions"


def shipped(phase: str) -> list[FittedProfile]:
    """Fit the shipped H200 profiles of one phase that have a sweep."""
    folders = sorted(shipped_folder().glob(f"h200-*-{phase}"))
    loaded = [load_profile(folder) for folder in folders]
    fitted = [fit_profile(profile.file, profile.points) for profile in loaded]
    return [profile for profile in fitted if profile.layouts]


def as_row(name: str, goal: Mapping[str, float], errors: Errors | None) -> Row:
    if errors is None:
        return Row(name, goal, None)
    got = {"median": 100 * errors.median, "p90": 100 * errors.p90, "covered": 100 * errors.covered}
    return Row(name, goal, got, errors.points)


def times(profiles: Iterable[FittedProfile]) -> list[Curve]:
    return [fit.time for profile in profiles for fit in profile.fits if fit.time is not None]


def memories(profiles: Iterable[FittedProfile]) -> list[Curve]:
    return [fit.memory for profile in profiles for fit in profile.fits if fit.memory is not None]


def least_tokens(tokens: float) -> Callable[[CurveSample], bool]:
    return lambda sample: sample.batch * sample.length >= tokens


def h200_rows() -> Iterable[Row]:
    """Leave-one-group-out (batch or length) over the shipped profiles."""
    profiles = {phase: shipped(phase) for phase in ("decode", "score", "train")}
    time_goals = {"decode": (2, 5, 0), "score": (2, 6, 1024), "train": (2, 6, 2048)}
    for phase, (median, p90, tokens) in time_goals.items():
        errors = errors_of(times(profiles[phase]), least_tokens(tokens))
        beyond = f" at ≥ {tokens} tokens" if tokens else ""
        goal = {"median": median, "p90": p90, "covered": 90}
        yield as_row(f"H200 {phase} time{beyond}", goal, errors)
    everything = [curve for found in profiles.values() for curve in memories(found)]
    for phase, found in profiles.items():
        errors = errors_of(memories(found), one_sided=True)
        yield as_row(f"H200 {phase} memory, reserved", {"median": 1.5, "p90": 6}, errors)
    errors = errors_of(everything, one_sided=True)
    yield as_row("H200 memory, reserved, all", {"median": 1.5, "p90": 6, "covered": 95}, errors)
    for phase, found in profiles.items():
        yield from prior_rows(phase, found)
    yield data_parallel_row(profiles["train"])


def prior_rows(phase: str, profiles: Sequence[FittedProfile]) -> Iterable[Row]:
    """Predict each model from the other ones only."""
    time_errors, memory_errors, covered = [], [], []
    for profile in profiles:
        prior = prior_for(profile.profile, [other for other in profiles if other is not profile])
        for curve in times([profile]):
            time_errors += [
                abs(prior.times_s(places_of([s.place]))[0].value / s.value - 1) for s in curve.samples
            ]
        for curve in memories([profile]):
            for sample in curve.samples:
                guess = prior.memories_mib(places_of([sample.place]))[0]
                memory_errors.append(abs(guess.value / sample.value - 1))
                covered.append(guess.high >= sample.value)
    got = {"median": 100 * statistics.median(time_errors)}
    yield Row(f"H200 {phase} time of a model left out (prior)", {"median": 15}, got, len(time_errors))
    got = {"median": 100 * statistics.median(memory_errors), "covered": 100 * float(np.mean(covered))}
    goal = {"median": 8.0, "covered": 95.0}
    yield Row(f"H200 {phase} memory of a model left out (prior)", goal, got, len(covered))


def data_parallel_row(profiles: Sequence[FittedProfile]) -> Row:
    """Predict steps on two GPUs from points on one and the link."""
    found = {profile.profile.model.id: profile for profile in profiles}
    errors = []
    for folder in sorted(shipped_folder().glob("h200-*-train-ddp")):
        measured = load_profile(folder)
        alone = found[measured.file.model.id]
        for point in measured.points:
            if point.dp > 1 and point.time_s is not None and point.seq_len_tokens is not None:
                query = Query(point.batch_sequences, point.seq_len_tokens, dp=point.dp)
                errors.append(abs(alone.time_s(query).value / point.time_s - 1))
    goal = {"worst": 5.0}
    if not errors:
        return Row("H200 two-GPU training step from one-GPU points", goal, None)
    return Row(
        "H200 two-GPU training step from one-GPU points", goal, {"worst": 100 * max(errors)}, len(errors)
    )


def read(data: Path | None, name: str) -> list[dict[str, str]] | None:
    if data is None or not (data / name).is_file():
        return None
    with (data / name).open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def left_out(
    recipe: Recipe, samples: Sequence[CurveSample], groups: Sequence[object], least: int
) -> list[float]:
    """Return ln(measured / predicted) of each group left out, where `least` samples remain."""
    errors: list[float] = []
    for group in dict.fromkeys(groups):
        kept = [sample for sample, other in zip(samples, groups, strict=True) if other != group]
        if len(kept) < least:
            continue
        form, residual = fit_plain(recipe, kept)
        left = [sample for sample, other in zip(samples, groups, strict=True) if other == group]
        at = places_of([sample.place for sample in left])
        predicted = form.predict(at) * np.exp(np.clip(residual.log_factor(np.log2(at)), -0.3, 0.3))
        errors += np.log(np.array([sample.value for sample in left]) / predicted).tolist()
    return errors


def plain_sample(batch: float, length: float, output: float, value: float) -> CurveSample:
    return CurveSample(batch, length, output, value, value, value, ())


CONFIGURATION = (
    "system",
    "backend",
    "backend_version",
    "model_path",
    "precision",
    "tp_size",
    "pp_size",
    "attention_dp_size",
    "moe_tp_size",
    "moe_ep_size",
    "gemm_quant_mode",
    "moe_quant_mode",
)


def serve_rows(table: list[dict[str, str]] | None) -> Iterable[Row]:
    """Leave one place out inside each serving configuration, its bounds drawn from its other places."""
    name = "serving TPOT, median error of a configuration"
    if table is None:
        yield Row(name, {"median": 6.0}, None)
        return
    groups: dict[tuple[str, ...], list[CurveSample]] = defaultdict(list)
    for row in table:
        seconds = float(row["silicon_tpot_ms"]) / 1e3
        sample = plain_sample(float(row["batch_size"]), float(row["isl"]), float(row["osl"]), seconds)
        groups[tuple(row[key] for key in CONFIGURATION)].append(sample)
    fittable = [group for group in groups.values() if len({s.place for s in group}) > LEAST_POINTS]
    curves = [fit_curve(TIME["serve"], group) for group in fittable]
    found = [errors for curve in curves if (errors := errors_of([curve])) is not None]
    count = sum(errors.points for errors in found)
    median = 100 * statistics.median(errors.median for errors in found)
    yield Row(name, {"median": 6.0}, {"median": median}, count)
    means = [statistics.mean(abs(math.expm1(-row.log_error)) for row in curve.held_out) for curve in curves]
    mean = {"median": 100 * statistics.median(means)}
    yield Row("serving TPOT, mean error of a configuration", {"median": 6.0}, mean, count)
    covered = sum(errors.covered * errors.points for errors in found) / count
    yield Row("serving TPOT, all places", {"covered": 90.0}, {"covered": 100 * covered}, count)


def sweep_row(name: str, sweeps: Iterable[list[CurveSample]] | None) -> Row:
    """Leave one length out of each training sweep."""
    goal = {"median": 3.0}
    if sweeps is None:
        return Row(name, goal, None)
    errors: list[float] = []
    for samples in sweeps:
        lengths = [sample.length for sample in samples]
        if len(set(lengths)) >= LEAST_SWEEP:
            errors += left_out(TIME["train"], samples, lengths, LEAST_SWEEP - 1)
    relative = [100 * abs(math.expm1(-error)) for error in errors]
    return Row(name, goal, {"median": statistics.median(relative)}, len(relative))


def foundry_sweeps(table: list[dict[str, str]] | None) -> list[list[CurveSample]] | None:
    if table is None:
        return None
    keys = ("Model", "GPU", "Precision", "# GPUs", "Sharding Strategy", "Activation Checkpointing")
    sweeps: dict[tuple[str, ...], list[CurveSample]] = defaultdict(list)
    for row in table:
        batch = float(row["MicroBatchSize"]) * float(row["GradAccum"])
        length = float(row["SeqLen (T)"])
        seconds = batch * length / float(row["Throughput (T/s/GPU)"])
        sweeps[tuple(row[key] for key in keys)].append(plain_sample(batch, length, 1.0, seconds))
    return list(sweeps.values())


def torchtitan_sweeps(table: list[dict[str, str]] | None) -> list[list[CurveSample]] | None:
    if table is None:
        return None
    sweeps: dict[str, list[CurveSample]] = defaultdict(list)
    for row in table:
        if row["Sequence Length"] and row["TPS/GPU"]:
            length = float(row["Sequence Length"])
            rate = float(re.sub(",", "", row["TPS/GPU"]))
            sweeps[row["table"]].append(plain_sample(1.0, length, 1.0, length / rate))
    return list(sweeps.values())


def in_sample_row(name: str, sweeps: Iterable[list[CurveSample]] | None) -> Row:
    """Fit each sweep whole with s/token = a + c·S and compare it with itself."""
    goal = {"median": 3.0}
    if sweeps is None:
        return Row(name, goal, None)
    errors: list[float] = []
    for samples in sweeps:
        if len({sample.length for sample in samples}) >= LEAST_SWEEP:
            form, _ = fit_plain(TIME["train"], samples)
            predicted = form.predict(places_of([sample.place for sample in samples]))
            errors += [abs(p / s.value - 1) for p, s in zip(predicted.tolist(), samples, strict=True)]
    return Row(name, goal, {"median": 100 * statistics.median(errors)}, len(errors))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print the cost models' errors beside their goals.")
    parser.add_argument("--data", type=Path, help="folder with the published tables")
    parser.add_argument("--check", action="store_true", help="fail when a measured goal is missed")
    parser.add_argument("--rows", type=int, default=100_000, help="how many questions to time")
    options = parser.parse_args(arguments)
    data: Path | None = options.data
    rows = list(h200_rows())
    rows += serve_rows(read(data, "aic_silicon_h100_h200.csv"))
    foundry = foundry_sweeps(read(data, "llm_foundry_mpt_train.csv"))
    titan = torchtitan_sweeps(read(data, "torchtitan_llama3_train.csv"))
    for name, sweeps in (("llm-foundry", foundry), ("torchtitan (CP grows with length)", titan)):
        rows.append(sweep_row(f"{name} training sweeps, length left out", sweeps))
        rows.append(in_sample_row(f"{name} training sweeps, in sample", sweeps))
    both = None if foundry is None or titan is None else foundry + titan
    rows.append(sweep_row("both tables' training sweeps, length left out", both))
    for row in rows:
        print(row)
    print(f"\n{HEADER}")
    models = table()
    for model in models:
        print(model)
    print()
    for line in report(options.rows):
        print(line)
    missed = any(row.missed() for row in rows) or any(model.missed() for model in models)
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
