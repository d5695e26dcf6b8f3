"""Import one source: read, check, set aside what cannot be true, write profile folders."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from libra_plan.errors import ProfileError, Where, few
from libra_plan.profiles import physics
from libra_plan.profiles.counting import counted
from libra_plan.profiles.document import shown
from libra_plan.profiles.importers.base import ProfileDraft, RejectedRow, gpu_memory_mib
from libra_plan.profiles.importers.facts import ImportFacts, demand
from libra_plan.profiles.importers.records import SourceFiles, read_source
from libra_plan.profiles.importers.registry import find_format
from libra_plan.profiles.importers.repeats import merge_repeats
from libra_plan.profiles.outliers import GROSS, outliers
from libra_plan.profiles.points import MAX_POINTS, PointRow, lacking
from libra_plan.profiles.profile_folder import write_folder
from libra_plan.profiles.schema import Hardware, Point, ProfileFile, Provenance

__all__ = ["ImportReport", "import_profile"]

_HEADER = "# Written by `libra-plan profile import`: import again rather than edit.\n"
LEAST_PLACES = 6


@dataclass(frozen=True)
class ImportReport:
    """What became of the source: rows kept per profile, rows kept out and why, things to know."""

    kept: dict[str, int]
    quarantined: tuple[RejectedRow, ...]
    warnings: tuple[str, ...]


def import_profile(
    format_name: str, source: str | Path, target_dir: str | Path, facts: ImportFacts, *, replace: bool = False
) -> tuple[tuple[Path, ...], ImportReport]:
    """Write a profile folder per role or stack found in `source`; give them with the report.

    Rows that cannot be true are kept out, listed in the report and in `quarantined.csv` of their
    folder. Raises InputError for facts that only the user knows, ProfileError when no row is left or,
    without `replace`, when a profile of the same id is there: then nothing is written.
    """
    format_ = find_format(format_name)
    demand(facts, format_.needs, f"a source of format {format_.name}", str(source))
    read = read_source(source, format_.endings)
    reading = format_.read(read, facts)
    made: list[tuple[ProfileFile, list[Point], list[RejectedRow]]] = []
    kept: dict[str, int] = {}
    quarantined, warnings = list(reading.rejected), list(reading.warnings)
    for draft in reading.drafts:
        profile = _profile(draft, read, facts, format_name)
        points, aside = _sound(draft, profile)
        quarantined += aside
        if not any(point.status == "ok" for point in points):
            warnings.append(f"{draft.id}: no row can be used, nothing is written")
            continue
        kept[draft.id] = len(points)
        warnings += _thin(draft, points)
        made.append((profile, points, aside))
    if not made:
        said = [f"{each.where}: {each.reason}" for each in quarantined]
        raise ProfileError(
            "no row of the source can be used",
            got=few(said, 3, "; ") if said else "no records",
            allowed=f"rows of {format_.summary}",
            way_out="check the format's name and the facts given by flags",
            where=Where(str(source)),
        )
    target = Path(target_dir)
    if not replace:
        _refuse_existing(target, [profile.id for profile, _, _ in made])
    folders = tuple(write_folder(target, profile, points, _HEADER) for profile, points, _ in made)
    for folder, (_, _, aside) in zip(folders, made, strict=True):
        _list_quarantined(folder, aside)
    return folders, ImportReport(kept, tuple(quarantined), tuple(dict.fromkeys(warnings)))


def _refuse_existing(target: Path, names: Sequence[str]) -> None:
    there = [name for name in names if (target / name / "profile.yaml").exists()]
    if there:
        raise ProfileError(
            f"{counted(len(there), 'profile')} of this name already there",
            got=", ".join(there),
            way_out="--replace writes over; --id NAME makes another profile",
            where=Where(shown(target)),
        )


def _profile(draft: ProfileDraft, read: SourceFiles, facts: ImportFacts, format_name: str) -> ProfileFile:
    memory = gpu_memory_mib(facts, draft.gpu_class)
    if memory is None:
        demand(
            facts,
            ("gpu_memory_mib",),
            f"GPU class {draft.gpu_class} is not known here, and the file",
            read.path,
        )
    published = format_name == "aiconfigurator"
    return ProfileFile(
        schema_version=1,
        id=draft.id,
        phase=draft.phase,
        model=draft.model,
        hardware=Hardware(gpu_class=draft.gpu_class, memory_mib=cast(float, memory)),
        software=draft.software,
        method=msgspec.structs.replace(draft.method, date=facts.date),
        provenance=Provenance(
            kind=cast(Any, facts.kind or ("published" if published else "measured")),
            points_sha256="0" * 64,
            source=read.path,
            source_sha256=read.sha256,
            source_url=facts.source_url,
            source_commit=facts.source_commit,
            licence=facts.licence,
        ),
        notes=draft.notes,
    )


def _sound(draft: ProfileDraft, profile: ProfileFile) -> tuple[list[Point], list[RejectedRow]]:
    """Merge repeats and keep what can be true; say of the rest where it came from and why."""
    merged, rejected = merge_repeats(draft.rows)
    where = {_line(row.where, index): row.where for index, row in enumerate(merged)}
    if len(where) < len(merged):  # several files: their lines repeat
        where = {index: row.where for index, row in enumerate(merged, start=1)}
    rows = [PointRow(line, row.point) for line, row in zip(where, merged, strict=True)]
    odd = [
        physics.SetAside(row, why)
        for row in rows
        if (why := lacking(row.point, profile.phase) or physics.immeasurable(row.point))
    ]
    rows = _without(rows, odd)
    # gross errors first: of two rows that contradict each other the fit knows which is wrong
    gross = outliers(rows, profile.phase, GROSS)
    kept, impossible = physics.sift(_without(rows, gross), profile)
    far = outliers(kept, profile.phase)
    rejected += [RejectedRow(where[item.row.line], item.reason) for item in (*odd, *gross, *impossible, *far)]
    points = sorted((row.point for row in _without(kept, far)), key=_order)
    if len(points) > MAX_POINTS:
        raise ProfileError(
            "too many rows for one profile",
            got=len(points),
            allowed=MAX_POINTS,
            way_out="import part of the log",
            where=Where(profile.id),
        )
    return points, rejected


def _without(rows: Sequence[PointRow], aside: Sequence[physics.SetAside]) -> list[PointRow]:
    gone = {item.row.line for item in aside}
    return [row for row in rows if row.line not in gone]


def _line(where: str, index: int) -> int:
    """Give the line of a place in a file; a file of one record has none."""
    line = where.rpartition(":")[2]
    return int(line) if line.isdecimal() else index + 1


def _order(point: Point) -> tuple[int, ...]:
    """Order rows for reading: by layout, lengths, batch."""
    lengths = (point.prompt_tokens or 0, point.output_tokens or 0, point.seq_len_tokens or 0)
    return (point.tp, point.pp, point.cp, point.ep, point.dp, *lengths, point.batch_sequences)


def _thin(draft: ProfileDraft, points: Sequence[Point]) -> list[str]:
    """Warn of layouts with too few places to fit."""
    places: dict[tuple[int, ...], set[tuple[int | None, ...]]] = {}
    for point in points:
        place = (point.batch_sequences, point.seq_len_tokens, point.prompt_tokens, point.output_tokens)
        places.setdefault((point.tp, point.pp, point.cp, point.ep), set()).add(place)
    return [
        f"{draft.id}: {counted(len(found), 'place')} at tp {layout[0]}, a fit needs {LEAST_PLACES}"
        for layout, found in sorted(places.items())
        if len(found) < LEAST_PLACES
    ]


def _list_quarantined(folder: Path, aside: Sequence[RejectedRow]) -> None:
    path = folder / "quarantined.csv"
    path.unlink(missing_ok=True)
    if not aside:
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "reason"])
    writer.writerows((item.where, item.reason) for item in aside)
    path.write_bytes(text.getvalue().encode())
