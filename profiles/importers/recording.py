"""Recordings of our own: JSON lines, one window a line (docs/importing.md has the format).

    {"t_s": 120.0, "role": "actor", "tokens": 524288, "steps": 4, "batch_sequences": 32,
     "seq_len_tokens": 4096, "peak_reserved_mib": 61234.0}

`t_s` is the window's end on a clock that only goes forward; `tokens` and `steps` were done since the
role's line before, so a role's first line only starts its clock. Lines of `libra_plan.counter` have a
`start_s` of their own, `waiting_s` that is no work, and the tokens of one data-parallel rank: of the
ranks the lowest is read.
"""

from __future__ import annotations

from typing import cast

import msgspec

from libra_plan.profiles import wording
from libra_plan.profiles.importers.base import (
    BadRow,
    Format,
    Reading,
    SourceRow,
    draft_of,
    layout_of,
    usable,
)
from libra_plan.profiles.importers.facts import ImportFacts
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord, records
from libra_plan.profiles.schema import Method, Phase, Point

__all__ = ["FORMAT"]

_PASSES = ("score", "train")


def _read(source: SourceFiles, facts: ImportFacts) -> Reading:
    phase = cast(Phase, facts.phase)
    if phase == "serve":
        source.refuse(
            "windows of counters do not tell prompts from outputs",
            got="--phase serve",
            allowed="decode, score, train",
            way_out="record a decode role, or import the engine's own benchmark",
        )
    windows = list(records(source))
    roles = sorted({str(record.fields.get("role")) for record in windows})
    if facts.role not in roles:
        source.refuse(
            "the recording has no such role",
            got=f"--role {facts.role}",
            allowed=wording.one_of(roles),
            way_out=wording.did_you_mean(str(facts.role), roles) or "state one of them",
        )
    own = [record for record in windows if str(record.fields.get("role")) == facts.role]
    _check_task(own, source)
    lowest = min((record.number("dp_rank") or 0.0 for record in own), default=0.0)
    own = [record for record in own if (record.number("dp_rank") or 0.0) == lowest]
    before = dict(zip((window.where for window in own), [None, *own], strict=False))
    timed = [each for each in own if before[each.where] is not None or each.number("start_s") is not None]

    def row(window: SourceRecord) -> SourceRow:
        start, previous = window.number("start_s"), before[window.where]
        if start is None and previous is not None:
            start = previous.number("t_s")
        return SourceRow(window.where, _point(start, window, phase, facts))

    rows, rejected = usable(timed, row)
    method = Method(tokens_counted="input" if phase in _PASSES else "output", throughput_basis="total")
    draft = draft_of(facts, f"-{facts.role}-{phase}", phase, rows, method, notes="windows of a running role")
    return Reading((draft,), rejected)


def _check_task(own: list[SourceRecord], source: SourceFiles) -> None:
    tasks = sorted({str(record.fields["task"]) for record in own if "task" in record.fields})
    if len(tasks) > 1:
        source.refuse(
            "several tasks have the role in this recording",
            got=", ".join(tasks),
            allowed="one task",
            way_out="import the files of one task",
        )


def _point(start: float | None, window: SourceRecord, phase: Phase, facts: ImportFacts) -> Point:
    end = window.number("t_s")
    steps, tokens = window.positive("steps"), window.positive("tokens")
    batch, length = window.positive("batch_sequences"), window.positive("seq_len_tokens")
    if start is None or end is None or end <= start:
        raise BadRow(f"t_s does not go forward: {start} then {end}")
    if steps is None or tokens is None:
        raise BadRow("no step was done in this window")
    if batch is None or length is None:
        raise BadRow("batch_sequences or seq_len_tokens is missing")
    gpus = (facts.tp or 1) * (facts.pp or 1) * (facts.cp or 1)
    ranks = max((facts.gpus or gpus) // gpus, 1) if phase in _PASSES else 1
    working = end - start - min(window.number("waiting_s") or 0.0, end - start)
    if working <= 0:
        raise BadRow("the rank waited all the window")
    of_one_rank = "start_s" in window.fields
    point = Point(
        batch_sequences=round(batch),
        seq_len_tokens=round(length),
        dp=ranks,
        time_s=working / steps,
        tokens_per_s=tokens * (ranks if of_one_rank else 1) / working,
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
