"""Import one source: read, check, set aside what cannot be true, write profile folders."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from libra_plan.errors import InputError, ProfileError, Where, few, writing
from libra_plan.profiles import physics, wording
from libra_plan.profiles.counting import counted
from libra_plan.profiles.document import shown
from libra_plan.profiles.importers import aiconfigurator, plain_csv, recording, serving, training_logs
from libra_plan.profiles.importers.base import Format, ProfileDraft, RejectedRow, SourceRow, gpu_memory_mib
from libra_plan.profiles.importers.facts import ImportFacts, demand, facts_from_flags
from libra_plan.profiles.importers.records import SourceFiles, read_source
from libra_plan.profiles.outliers import GROSS, outliers
from libra_plan.profiles.points import DUPLICATE_TOLERANCE, MAX_POINTS, PointRow, key_of, lacking
from libra_plan.profiles.profile_folder import write_folder
from libra_plan.profiles.schema import Hardware, Point, ProfileFile, Provenance

__all__ = ["FORMATS", "ImportReport", "import_profile"]

_HEADER = "# Written by `libra-plan profile import`: import again rather than edit.\n"
LEAST_PLACES = 6
_MOST_MEMORY = ("peak_allocated_mib", "peak_reserved_mib", "device_used_mib")


FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        serving.VLLM_SERVE,
        serving.VLLM_THROUGHPUT,
        serving.SGLANG_SERVE,
        aiconfigurator.FORMAT,
        training_logs.VERL,
        training_logs.NEMO_RL,
        plain_csv.FORMAT,
        recording.FORMAT,
    )
}
"""The formats by name. A new one is a module with a `Format` and a line here."""


@dataclass(frozen=True)
class ImportReport:
    """The result of an import: folders written, rows kept per profile, rows kept out and why, warnings."""

    folders: tuple[Path, ...]
    kept: dict[str, int]
    quarantined: tuple[RejectedRow, ...]
    warnings: tuple[str, ...]


def import_profile(
    format: str,
    source: str | Path,
    out: str | Path,
    *,
    replace: bool = False,
    **facts: str | float | Mapping[str, object],
) -> ImportReport:
    r"""Turn benchmark results or training logs into profiles: a folder per role or stack found.

    Rows that cannot be true are kept out, and listed in the report and in `quarantined.csv` of their
    folder.

    Parameters
    ----------
    format
        What the source is: vllm-serve, vllm-throughput, sglang-serve, aiconfigurator, verl, nemo-rl,
        csv or recording.
    source
        The file, or a folder whose files are read together.
    out
        The folder that takes the profiles.
    replace
        Whether to write over profiles of the same id.
    **facts
        What the source does not say, as `libra-plan profile import --list` names it: `gpu_class`,
        `model`, `precision`, `tp` and so on.

    Returns
    -------
    ImportReport
        The folders written, the rows kept and kept out, and warnings.

    Raises
    ------
    InputError
        If a fact is missing or wrong, no row can be used, or a profile is there already: then nothing
        is written.

    Examples
    --------
    >>> import libra_plan as lp
    >>> from pathlib import Path
    >>> rows = [f"{n},{m},{20 + 0.03 * n * m}" for n in (1, 4, 16) for m in (512, 2048, 8192)]
    >>> _ = Path("table.csv").write_text("\n".join(["batch,length,latency", *rows]))
    >>> report = lp.import_profile(
    ...     "csv", "table.csv", "mine", phase="score", gpu_class="h200_sxm", model="qwen2.5-7b",
    ...     precision="bf16", framework="trtllm", framework_version="1.0", tp=1,
    ...     columns={"batch_sequences": "batch", "seq_len_tokens": "length", "time_s": "latency:ms"},
    ... )
    >>> report.kept
    {'h200_sxm-qwen2.5-7b-trtllm-score': 9}
    """
    found = _find_format(format)
    given = facts_from_flags({name: _as_flag(value) for name, value in facts.items()})
    demand(given, found.needs, f"a source of format {found.name}", str(source))
    read = read_source(source, found.endings)
    reading = found.read(read, given)
    made: list[tuple[ProfileFile, list[Point], list[RejectedRow]]] = []
    quarantined, warnings = list(reading.rejected), list(reading.warnings)
    for draft in reading.drafts:
        profile = _profile(draft, read, given, published=found is aiconfigurator.FORMAT)
        points, aside = _sound(draft, profile)
        quarantined += aside
        if not any(point.status == "ok" for point in points):
            warnings.append(f"{draft.id}: no row can be used, nothing is written")
            continue
        warnings += _thin(draft, points)
        made.append((profile, points, aside))
    if not made:
        said = [f"{each.where}: {each.reason}" for each in quarantined]
        raise ProfileError(
            "no row of the source can be used",
            got=few(said, 3, "; ") if said else "no records",
            allowed=f"rows of {found.summary}",
            way_out="check the format's name and the facts given by flags",
            where=Where(str(source)),
        )
    target = Path(out)
    if not replace:
        _refuse_existing(target, [profile.id for profile, _, _ in made])
    with writing(target):
        folders = tuple(write_folder(target, profile, points, _HEADER) for profile, points, _ in made)
        for folder, (_, _, aside) in zip(folders, made, strict=True):
            _list_quarantined(folder, aside)
    kept = {profile.id: len(points) for profile, points, _ in made}
    return ImportReport(folders, kept, tuple(quarantined), tuple(dict.fromkeys(warnings)))


def _find_format(name: str) -> Format:
    if name not in FORMATS:
        raise InputError(
            "no such format",
            got=name,
            allowed=wording.one_of(FORMATS),
            way_out=wording.did_you_mean(name, FORMATS) or "any table can be imported as csv with --columns",
        )
    return FORMATS[name]


def _as_flag(value: str | float | Mapping[str, object]) -> str:
    """Write a fact as its flag is written."""
    return ",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)


def _refuse_existing(target: Path, names: Sequence[str]) -> None:
    there = [name for name in names if (target / name / "profile.yaml").exists()]
    if there:
        raise ProfileError(
            f"{counted(len(there), 'profile')} of this name already there",
            got=", ".join(there),
            way_out="--replace writes over; --id NAME makes another profile",
            where=Where(shown(target)),
        )


def _profile(draft: ProfileDraft, read: SourceFiles, facts: ImportFacts, *, published: bool) -> ProfileFile:
    memory = gpu_memory_mib(facts, draft.gpu_class)
    if memory is None:
        what = f"GPU class {draft.gpu_class} is not known here, and the file"
        demand(facts, ("gpu_memory_mib",), what, read.path)
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
    """Merge repeats and keep rows that can be true; list the others with their places and reasons."""
    merged, rejected = _merge_repeats(draft.rows)
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
    """Return the line of a place in a file; a file of one record has none."""
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


# ---------------------------------------------------------------- repeats


def _merge_repeats(rows: Sequence[SourceRow]) -> tuple[list[SourceRow], list[RejectedRow]]:
    """Merge rows of one size and layout: the median time with its range, the highest peaks.

    Repeats agree when standard deviation ÷ mean is below 5 %; else none of them is believed.
    """
    groups: dict[tuple[object, ...], list[SourceRow]] = {}
    for row in rows:
        groups.setdefault(key_of(row.point), []).append(row)
    merged, rejected = [], []
    for group in groups.values():
        if len(group) == 1:
            merged.append(group[0])
            continue
        reason = _contradiction([row.point for row in group])
        if reason:
            rejected += [RejectedRow(row.where, reason) for row in group]
        else:
            merged.append(SourceRow(group[0].where, _merge([row.point for row in group])))
    return merged, rejected


def _contradiction(points: Sequence[Point]) -> str | None:
    if len({point.status for point in points}) > 1:
        return "repeats of one measurement contradict each other: " + ", ".join(p.status for p in points)
    times = [point.time_s for point in points if point.time_s is not None]
    if len(times) < 2:
        return None
    variation = statistics.stdev(times) / statistics.fmean(times)
    if variation < DUPLICATE_TOLERANCE:
        return None
    shown = ", ".join(f"{time:g}" for time in times[:5])
    return f"repeats of one measurement vary by {variation:.0%}: {shown} s; allowed {DUPLICATE_TOLERANCE:.0%}"


def _merge(points: Sequence[Point]) -> Point:
    times = [point.time_s for point in points if point.time_s is not None]
    if not times:
        return points[0]

    def middle(name: str) -> float | None:
        known = [value for point in points if (value := getattr(point, name)) is not None]
        return statistics.median(known) if known else None

    def most(name: str) -> float | None:
        return max((value for point in points if (value := getattr(point, name)) is not None), default=None)

    lows = [point.time_low_s or point.time_s or 0.0 for point in points]
    highs = [point.time_high_s or point.time_s or 0.0 for point in points]
    return msgspec.structs.replace(
        points[0],
        time_s=statistics.median(times),
        time_low_s=min(lows),
        time_high_s=max(highs),
        ttft_s=middle("ttft_s"),
        tokens_per_s=middle("tokens_per_s"),
        repeats=sum(point.repeats or 1 for point in points),
        **{name: most(name) for name in _MOST_MEMORY},
    )
