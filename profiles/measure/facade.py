"""Measure a model on the local GPU and write profiles: the one call behind the command."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from libra_plan.errors import InputError
from libra_plan.profiles.measure.architecture import find_architecture
from libra_plan.profiles.measure.journal import Journal
from libra_plan.profiles.measure.plan import WORKS, PlannedPoint, default_plan, informative_order
from libra_plan.profiles.measure.progress import Progress, make_progress
from libra_plan.profiles.measure.result import write_profiles
from libra_plan.profiles.measure.runner import Counts, Settings, Workload, measure_points

__all__ = ["Backend", "MeasureReport", "measure"]

CLOCK_NOTE = "host monotonic clock around synchronised repeats; median, lowest and highest"


class Backend(Protocol):
    """Builds the model and tells what it runs on; the shipped one is `TorchBackend`."""

    def setup(self, name: str) -> Mapping[str, object]:
        """Describe model, hardware and software of a kind of work."""

    def work(self, name: str) -> Workload:
        """Make the model ready for a kind of work."""

    def close(self) -> None:
        """Free the model."""

    @property
    def exclusive(self) -> bool | None:
        """Say whether nothing else computed on the device."""


@dataclass(frozen=True)
class MeasureReport:
    """What a run did: the folders written, the journal, and the counts of each profile."""

    folders: tuple[Path, ...]
    journal: Path
    counts: Mapping[str, Counts]

    @property
    def complete(self) -> bool:
        """Say whether no planned point is left to measure."""
        return not any(counts.left or counts.failed for counts in self.counts.values())


def measure(
    model: str,
    phases: Sequence[str],
    out_dir: Path,
    *,
    plan: Mapping[str, Sequence[PlannedPoint]] | None = None,
    budget_s: float | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    date: str | None = None,
    prefix: str | None = None,
    device: str | None = None,
    train_precision: str = "auto",
    source: str | None = None,
    gpu_class: str | None = None,
    clock: Callable[[], float] = time.perf_counter,
    backend: Backend | None = None,
    progress: Progress | None = None,
    write: bool = True,
) -> MeasureReport:
    """Measure `phases` of `model` and write one profile folder each into `out_dir`.

    `model` is a built-in name (qwen2.5-7b) or the path of a Hugging Face config.json, `phases` any of
    decode, decode-gqa, score, train, train-accumulated, in this order of measuring. A phase without
    points in `plan` gets the default grid; they are measured in the order that informs most. `budget_s`
    is for all phases, each of which may use its even share of what is left. `prefix` begins the profile
    ids (default: the GPU class). Without `write` only the journal is left.
    """
    _check_phases(phases)
    begun = clock()
    shown = make_progress() if progress is None else progress
    made = backend or _torch_backend(model, device, seed, train_precision)
    journal = Journal(out_dir / "journal.jsonl")
    run = _Run(made, journal, settings or Settings(), clock, shown)
    method = _method(run.settings, seed, date, made.exclusive)
    name = find_architecture(model).id
    counts: dict[str, Counts] = {}
    try:
        for number, phase in enumerate(phases):
            setup = {**made.setup(phase), "method": method | {"tokens_counted": _tokens_counted(phase)}}
            profile = f"{prefix or _gpu_class(setup)}-{name}-{phase}"
            deadline = _deadline(begun, budget_s, clock(), len(phases) - number)
            points = informative_order((plan or {}).get(phase) or default_plan(phase))
            journal.begin(profile, setup)
            counts[profile] = run.measure(phase, profile, points, deadline)
    finally:
        made.close()
        shown.close()
    folders = write_profiles(journal, out_dir, source=source, gpu_class=gpu_class) if write else ()
    return MeasureReport(folders, journal.path, counts)


def _check_phases(phases: Sequence[str]) -> None:
    for phase in phases:
        if phase not in WORKS:
            raise InputError("unknown phase", got=phase, allowed=", ".join(WORKS))
    if not phases or len(set(phases)) != len(phases):
        raise InputError("name each phase once", got=",".join(phases) or "none", allowed=", ".join(WORKS))


def _torch_backend(model: str, device: str | None, seed: int, train_precision: str) -> Backend:
    from libra_plan.profiles.measure.torch_backend import TorchBackend

    return TorchBackend(find_architecture(model), device=device, seed=seed, train_precision=train_precision)


def _method(settings: Settings, seed: int, date: str | None, exclusive: bool | None) -> dict[str, object]:
    return {
        "date": date,
        "seed": seed,
        "warmup": settings.warmup,
        "repeats": settings.repeats,
        "clock": CLOCK_NOTE,
        "exclusive": exclusive,
        "throughput_basis": "total",
    }


def _tokens_counted(phase: str) -> str:
    return "output" if phase.startswith("decode") else "input"


def _gpu_class(setup: Mapping[str, Any]) -> str:
    return str(setup["hardware"]["gpu_class"])


def _deadline(begun: float, budget_s: float | None, now: float, phases_left: int) -> float:
    """Give a phase its even share of what is left; what it does not use flows on."""
    if budget_s is None:
        return float("inf")
    return now + max(0.0, begun + budget_s - now) / phases_left


@dataclass(frozen=True)
class _Run:
    """What all phases of a run share."""

    backend: Backend
    journal: Journal
    settings: Settings
    clock: Callable[[], float]
    shown: Progress

    def measure(self, phase: str, profile: str, points: Sequence[PlannedPoint], deadline: float) -> Counts:
        """Measure one phase; the work, and with it the model, is let go on return."""
        done = len(self.journal.done(profile).keys() & set(points))
        if done == len(points) or self.clock() >= deadline:  # do not build a model for nothing
            return Counts(done_before=done, left=len(points) - done)
        self.shown.begin(profile, len(points))
        counts = measure_points(
            profile,
            self.backend.work(phase),
            points,
            self.journal,
            settings=self.settings,
            clock=self.clock,
            deadline=deadline,
            tell=lambda point, row: self.shown.advance(f"{point} {_outcome(row)}"),
        )
        self.shown.say(
            f"{profile}: {counts.ok} measured, {counts.oom} out of memory, {counts.implied_oom} larger than "
            f"those, {counts.failed} failed, {counts.done_before} done before, {counts.left} left"
        )
        return counts


def _outcome(row: Mapping[str, object]) -> str:
    if row["status"] != "ok":
        return f"{row['status']} {row.get('error', '')}".rstrip()
    memory = row.get("peak_allocated_mib")
    return f"{row['time_s']:.6f} s" + ("" if memory is None else f", {memory:.0f} MiB")
