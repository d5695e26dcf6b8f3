"""Recordings of our own monitor: JSON lines, one window a line (docs/importing.md has the format).

    {"t_s": 120.0, "role": "actor", "tokens": 524288, "steps": 4, "batch_sequences": 32,
     "seq_len_tokens": 4096, "peak_reserved_mib": 61234.0}

`t_s` is the window's end on a clock that only goes forward; `tokens` and `steps` were done since the
role's line before, so a role's first line only starts its clock.
"""

from __future__ import annotations

import itertools
from typing import cast

import msgspec

from libra_plan.errors import InputError, Where
from libra_plan.profiles import wording
from libra_plan.profiles.importers.base import (
    BadRow,
    Format,
    Reading,
    Rejected,
    SourceRow,
    draft_of,
    layout_of,
)
from libra_plan.profiles.importers.facts import ImportFacts
from libra_plan.profiles.importers.records import Record, Source, records
from libra_plan.profiles.schema import Method, Phase, Point

__all__ = ["FORMAT"]

_PASSES = ("score", "train")


def _read(source: Source, facts: ImportFacts) -> Reading:
    phase = cast(Phase, facts.phase)
    if phase == "serve":
        raise InputError(
            "windows of counters do not tell prompts from outputs",
            got="--phase serve",
            allowed="decode, score, train",
            way_out="record a decode role, or import the engine's own benchmark",
            where=Where(source.path),
        )
    windows = list(records(source))
    roles = sorted({str(record.fields.get("role")) for record in windows})
    if facts.role not in roles:
        raise InputError(
            "the recording has no such role",
            got=f"--role {facts.role}",
            allowed=wording.one_of(roles),
            way_out=wording.did_you_mean(str(facts.role), roles) or "state one of them",
            where=Where(source.path),
        )
    own = [record for record in windows if str(record.fields.get("role")) == facts.role]
    rows, rejected = [], []
    for before, window in itertools.pairwise(own):
        try:
            rows.append(SourceRow(window.where, _point(before, window, phase, facts)))
        except BadRow as reason:
            rejected.append(Rejected(window.where, str(reason)))
    method = Method(tokens_counted="input" if phase in _PASSES else "output", throughput_basis="total")
    draft = draft_of(facts, f"-{facts.role}-{phase}", phase, rows, method, notes="windows of a running role")
    return Reading((draft,), tuple(rejected))


def _point(before: Record, window: Record, phase: Phase, facts: ImportFacts) -> Point:
    start, end = before.number("t_s"), window.number("t_s")
    steps, tokens = window.positive("steps"), window.positive("tokens")
    batch, length = window.positive("batch_sequences"), window.positive("seq_len_tokens")
    if start is None or end is None or end <= start:
        raise BadRow(f"t_s does not go forward: {start} then {end}")
    if steps is None or tokens is None:
        raise BadRow("no step was done in this window")
    if batch is None or length is None:
        raise BadRow("batch_sequences or seq_len_tokens is missing")
    gpus = (facts.tp or 1) * (facts.pp or 1) * (facts.cp or 1)
    point = Point(
        batch_sequences=round(batch),
        seq_len_tokens=round(length),
        dp=max((facts.gpus or gpus) // gpus, 1) if phase in _PASSES else 1,
        time_s=(end - start) / steps,
        tokens_per_s=tokens / (end - start),
        peak_allocated_mib=window.positive("peak_allocated_mib"),
        peak_reserved_mib=window.positive("peak_reserved_mib"),
    )
    return msgspec.structs.replace(point, **layout_of(facts))


FORMAT = Format(
    "recording",
    "a recording of our own monitor, JSON lines",
    (".jsonl",),
    ("gpu_class", "model", "precision", "framework", "framework_version", "tp", "gpus", "phase", "role"),
    _read,
)
