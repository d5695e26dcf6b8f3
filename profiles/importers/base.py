"""The parts of every format: the facts it needs, and a reader that turns records into drafts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from libra_plan.errors import InputError, Where
from libra_plan.profiles.hardware import gpu_limits, implausible_memory
from libra_plan.profiles.importers.facts import ImportFacts
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord
from libra_plan.profiles.schema import Method, ModelShape, Phase, Point, Software

__all__ = [
    "BadRow",
    "Format",
    "ProfileDraft",
    "Reading",
    "RejectedRow",
    "SourceRow",
    "draft_of",
    "gpu_memory_mib",
    "layout_of",
    "usable",
]

T = TypeVar("T")


class BadRow(Exception):
    """A record that cannot be used; the message is the reason listed in the report."""


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A point and where it comes from (`file:line`)."""

    where: str
    point: Point


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A record kept out of the profile, with the reason."""

    where: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ProfileDraft:
    """A profile before its rows are checked and written."""

    id: str
    phase: Phase
    gpu_class: str
    model: ModelShape
    software: Software
    method: Method
    rows: Sequence[SourceRow]
    notes: str = ""


@dataclass(frozen=True)
class Reading:
    """The result of a reader: drafts, records it could not use, and warnings."""

    drafts: tuple[ProfileDraft, ...]
    rejected: Sequence[RejectedRow] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Format:
    """A format by name: what it is, the files it lies in, what it never says, how it is read.

    `needs` are facts that every import must be given; a reader demands others when its records
    lack them.
    """

    name: str
    summary: str
    endings: tuple[str, ...]
    needs: tuple[str, ...]
    read: Callable[[SourceFiles, ImportFacts], Reading]


def usable(
    found: Iterable[SourceRecord], read: Callable[[SourceRecord], T]
) -> tuple[list[T], list[RejectedRow]]:
    """Read every record; one that raises BadRow is rejected with its reason."""
    rows, rejected = [], []
    for record in found:
        try:
            rows.append(read(record))
        except BadRow as reason:
            rejected.append(RejectedRow(record.where, str(reason)))
    return rows, rejected


def layout_of(facts: ImportFacts) -> dict[str, int]:
    """Return the layout columns of a point."""
    return {"tp": facts.tp or 1, "pp": facts.pp or 1, "cp": facts.cp or 1, "ep": facts.ep or 1}


def draft_of(
    facts: ImportFacts,
    suffix: str,
    phase: Phase,
    rows: Sequence[SourceRow],
    method: Method,
    *,
    framework: str | None = None,
    model: ModelShape | None = None,
    notes: str = "",
) -> ProfileDraft:
    """Make the draft of facts that name one GPU class, model and stack (demanded before).

    `framework` is the format's own, where the facts name no other.
    """
    shape, framework = model or facts.model, facts.framework or framework
    assert shape is not None
    assert facts.gpu_class is not None
    base = facts.id or f"{facts.gpu_class}-{shape.id}-{framework}"
    software = Software(
        framework=str(framework),
        version=str(facts.framework_version),
        precision=str(facts.precision),
        kv_precision=facts.kv_precision,
        recompute=facts.recompute if phase == "train" else None,
        flags=dict(facts.flags),
    )
    return ProfileDraft(
        id=f"{base}{suffix}",
        phase=phase,
        gpu_class=facts.gpu_class,
        model=shape,
        software=software,
        method=method,
        rows=rows,
        notes="; ".join(each for each in (notes, facts.notes) if each),
    )


def gpu_memory_mib(facts: ImportFacts, gpu_class: str) -> float | None:
    """Return the memory of one GPU: as stated, else of the known class."""
    if facts.gpu_memory_mib is None:
        known = gpu_limits(gpu_class)
        return known.memory_mib if known else None
    wrong = implausible_memory(gpu_class, facts.gpu_memory_mib)
    if wrong is not None:
        raise InputError(**wrong, where=Where("--gpu-memory-mib"))
    return facts.gpu_memory_mib
