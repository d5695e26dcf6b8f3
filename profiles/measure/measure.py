"""Measure a model on the local GPU and write profiles: the one call behind the command."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from libra_plan.errors import InputError, writing
from libra_plan.notes import Notes, log_note
from libra_plan.profiles.measure.architecture import find_architecture
from libra_plan.profiles.measure.journal import MeasureJournal, write_profiles
from libra_plan.profiles.measure.plan import (
    WORKS,
    PlannedPoint,
    default_plan,
    informative_order,
    read_points_plan,
)
from libra_plan.profiles.measure.runner import Counts, DeviceWork, MeasureSettings, measure_points

__all__ = ["MeasureBackend", "MeasureReport", "measure_profile"]

_PRECISIONS = ("auto", "bf16", "fp32-master/bf16")


class MeasureBackend(Protocol):
    """Builds the model and describes what it runs on; the shipped one is `TorchBackend`."""

    def setup(self, name: str) -> Mapping[str, object]:
        """Describe model, hardware and software of a kind of work."""

    def work(self, name: str) -> DeviceWork:
        """Make the model ready for a kind of work."""

    def close(self) -> None:
        """Free the model."""

    @property
    def exclusive(self) -> bool | None:
        """Whether nothing else computed on the device."""


@dataclass(frozen=True)
class MeasureReport:
    """The result of a run: the folders written, the journal, and the counts of each profile."""

    folders: tuple[Path, ...]
    journal: Path
    counts: Mapping[str, Counts]

    @property
    def complete(self) -> bool:
        """Whether no planned point is left to measure."""
        return not any(counts.left or counts.failed for counts in self.counts.values())


def measure_profile(
    model: str,
    out: str | Path,
    phases: Sequence[str] = ("decode", "score", "train"),
    *,
    plan: str | Path | Mapping[str, Sequence[PlannedPoint]] | None = None,
    budget_s: float | None = None,
    repeats: int = 5,
    warmup: int = 2,
    point_s: float = 10.0,
    seed: int = 0,
    date: str | None = None,
    prefix: str | None = None,
    device: str | None = None,
    train_precision: str = "auto",
    gpu_class: str | None = None,
    notes: Notes = log_note,
    clock: Callable[[], float] = time.perf_counter,
    backend: MeasureBackend | None = None,
) -> MeasureReport:
    """Measure a model on the local GPU, with random weights, and write one profile folder per phase.

    A run that was stopped goes on where it was when it is called again with the same folder.

    Parameters
    ----------
    model
        A built-in name (qwen2.5-7b) or the path of a Hugging Face config.json.
    out
        The folder that takes the journal and the profiles.
    phases
        Any of decode, decode-gqa, score, train, train-accumulated, in the order of measuring.
    plan
        The points to measure, or a CSV file of `work,batch_sequences,seq_len_tokens`. A phase without
        points gets the default grid; they are measured in the order that informs most.
    budget_s
        Seconds for all phases; each may use its even share of what is left.
    repeats, warmup, point_s
        Repeats of a point, the steps before them, and seconds after which no further repeat starts.
    seed, date
        The seed of weights and inputs, and the day, as the profiles state them.
    prefix
        The beginning of the profile ids; the GPU class by default.
    device
        cuda:0, cuda:1, cpu and so on; the first GPU by default.
    train_precision
        auto, bf16 or fp32-master/bf16.
    gpu_class
        The cluster's word for this GPU.
    notes
        Called with a line for each measured point.
    clock, backend
        What tells seconds, and what builds the model; for tests.

    Returns
    -------
    MeasureReport
        The folders written, the journal, and what became of the planned points.

    Raises
    ------
    InputError
        If a phase, model or plan is wrong, PyTorch is missing, or the journal is of another machine.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.measure_profile("no-such-model", "own")
    Traceback (most recent call last):
        ...
    libra_plan.errors.ProfileError: no such model; got no-such-model; ...
    """
    _check(phases, train_precision)
    points = read_points_plan(Path(plan), phases) if isinstance(plan, (str, Path)) else plan or {}
    folder = Path(out)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    begun = clock()
    made = backend or _torch_backend(model, device, seed, train_precision)
    journal = MeasureJournal(folder / "journal.jsonl")
    settings = MeasureSettings(warmup=warmup, repeats=repeats, point_s=point_s)
    run = _Run(made, journal, settings, clock, notes)
    method = {
        "date": date,
        "seed": seed,
        "warmup": warmup,
        "repeats": repeats,
        "clock": "host monotonic clock around synchronised repeats; median, lowest and highest",
        "exclusive": made.exclusive,
        "throughput_basis": "total",
    }
    name = find_architecture(model).id
    counts: dict[str, Counts] = {}
    try:
        for number, phase in enumerate(phases):
            counted = "output" if phase.startswith("decode") else "input"
            setup: dict[str, Any] = {**made.setup(phase), "method": method | {"tokens_counted": counted}}
            profile = f"{prefix or setup['hardware']['gpu_class']}-{name}-{phase}"
            deadline = float("inf")
            if budget_s is not None:  # an even share of what is left; what a phase does not use flows on
                deadline = clock() + max(0.0, begun + budget_s - clock()) / (len(phases) - number)
            journal.begin(profile, setup)
            planned = informative_order(points.get(phase) or default_plan(phase))
            counts[profile] = run.measure(phase, profile, planned, deadline)
    finally:
        made.close()
    return MeasureReport(write_profiles(journal, folder, gpu_class=gpu_class), journal.path, counts)


def _check(phases: Sequence[str], train_precision: str) -> None:
    for phase in phases:
        if phase not in WORKS:
            raise InputError("unknown phase", got=phase, allowed=", ".join(WORKS))
    if not phases or len(set(phases)) != len(phases):
        raise InputError("name each phase once", got=",".join(phases) or "none", allowed=", ".join(WORKS))
    if train_precision not in _PRECISIONS:
        raise InputError("unknown --train-precision", got=train_precision, allowed=", ".join(_PRECISIONS))


def _torch_backend(model: str, device: str | None, seed: int, train_precision: str) -> MeasureBackend:
    from libra_plan.profiles.measure.torch_backend import TorchBackend

    return TorchBackend(find_architecture(model), device=device, seed=seed, train_precision=train_precision)


@dataclass(frozen=True)
class _Run:
    """What all phases of a run share."""

    backend: MeasureBackend
    journal: MeasureJournal
    settings: MeasureSettings
    clock: Callable[[], float]
    notes: Notes

    def measure(self, phase: str, profile: str, points: Sequence[PlannedPoint], deadline: float) -> Counts:
        """Measure one phase; the work, and with it the model, is released on return."""
        done = len(self.journal.done(profile).keys() & set(points))
        if done == len(points) or self.clock() >= deadline:  # do not build a model for nothing
            return Counts(done_before=done, left=len(points) - done)
        number = 0

        def tell(point: PlannedPoint, row: Mapping[str, object]) -> None:
            nonlocal number
            number += 1
            self.notes(f"{profile} [{number}/{len(points)}] {point} {_outcome(row)}")

        counts = measure_points(
            profile,
            self.backend.work(phase),
            points,
            self.journal,
            settings=self.settings,
            clock=self.clock,
            deadline=deadline,
            tell=tell,
        )
        self.notes(
            f"{profile}: {counts.ok} measured, {counts.oom} out of memory, {counts.implied_oom} larger than "
            f"those, {counts.failed} failed, {counts.done_before} done before, {counts.left} left"
        )
        return counts


def _outcome(row: Mapping[str, object]) -> str:
    if row["status"] != "ok":
        return f"{row['status']} {row.get('error', '')}".rstrip()
    memory = row.get("peak_allocated_mib")
    return f"{row['time_s']:.6f} s" + ("" if memory is None else f", {memory:.0f} MiB")
