"""Any CSV table: `--columns our_column=their_column:unit,…` says what each column is.

Units are demanded where a value has one: s, ms or us for times; B, KiB, MiB, GiB, MB or GB for
memory. A time per output token comes in two definitions, so serving tables state theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from libra_plan.errors import InputError, Where
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
from libra_plan.profiles.importers.facts import ImportFacts, demand
from libra_plan.profiles.importers.records import UNITS, SourceFiles, SourceRecord, columns_by_file, records
from libra_plan.profiles.importers.serving import TPOT_DEFINITION
from libra_plan.profiles.points import COLUMNS
from libra_plan.profiles.schema import Method, Phase, Point

__all__ = ["FORMAT"]

_FRACTIONS = ("time_s", "time_low_s", "time_high_s", "ttft_s", "tokens_per_s")
_LENGTHS = {"serve": ("prompt_tokens", "output_tokens")}
_Mapping = dict[str, tuple[str, str | None]]


def _read(source: SourceFiles, facts: ImportFacts) -> Reading:
    phase = cast(Phase, facts.phase)
    mapping = _mapping(facts, phase, source)
    rows, rejected = usable(
        records(source),
        lambda record: SourceRow(record.where, _point(record, mapping, facts, phase)),
    )
    method = Method(
        tokens_counted=cast(Any, facts.tokens_counted or _counted(phase)),
        throughput_basis=cast(Any, facts.throughput_basis or "total"),
        tpot_definition=TPOT_DEFINITION if phase == "serve" else None,
    )
    return Reading((draft_of(facts, f"-{phase}", phase, rows, method),), rejected)


def _counted(phase: Phase) -> str:
    """Return what is counted where no rate is stated; a stated rate demands the fact."""
    return "output" if phase in ("decode", "serve") else "input"


def _mapping(facts: ImportFacts, phase: Phase, source: SourceFiles) -> _Mapping:
    """Read the mapping, with a unit for every column that has one; demand what it brings with it."""
    files = columns_by_file(source)
    mapping: _Mapping = {}
    for ours, text in facts.columns.items():
        if ours not in COLUMNS:
            source.refuse(
                "--columns names no column of points.csv",
                got=ours,
                allowed=wording.one_of(COLUMNS),
                way_out=wording.did_you_mean(ours, COLUMNS) or "our column stands before the `=`",
            )
        whole = all(text in columns for _, columns in files)
        theirs, _, unit = (text, "", "") if whole or ":" not in text else text.rpartition(":")
        _require_column(ours, theirs, files)
        mapping[ours] = (theirs, _checked_unit(ours, theirs, unit, source))
    _require_all(mapping, phase, files, source)
    needs = [] if "tp" in mapping else ["tp"]
    needs += ["tokens_counted", "throughput_basis"] if "tokens_per_s" in mapping else []
    needs += ["tpot_definition"] if phase == "serve" else []
    demand(facts, needs, "a plain table", source.path)
    if facts.tpot_definition == "e2e" and "ttft_s" not in mapping:
        source.refuse(
            "e2e ÷ output holds the prefill, which cannot be told apart without the time to the first token",
            got="no ttft_s in --columns",
            allowed="a column with the time to the first token",
            way_out="add ttft_s=COLUMN:ms, or import the time per token after the first",
        )
    return mapping


def _require_column(ours: str, theirs: str, files: Iterable[tuple[str, list[str]]]) -> None:
    """Refuse a column that a file lacks, or has twice: a value would be dropped silently."""
    for name, columns in files:
        if theirs not in columns:
            raise InputError(
                f"--columns takes {ours} from a column that the file does not have",
                got=theirs or "no column",
                allowed=wording.one_of(columns),
                way_out=wording.did_you_mean(theirs, columns) or f"write {ours}=COLUMN, one of these",
                where=Where(name, 1),
            )
        if columns.count(theirs) > 1:
            way_out = "give the two columns names of their own"
            raise InputError(f"column `{theirs}` stands twice", way_out=way_out, where=Where(name, 1))


def _require_all(
    mapping: _Mapping, phase: Phase, files: Iterable[tuple[str, list[str]]], source: SourceFiles
) -> None:
    lengths = _LENGTHS.get(phase, ("seq_len_tokens",))
    lacking = [name for name in ("batch_sequences", "time_s", *lengths) if name not in mapping]
    if not lacking:
        return
    taken = {theirs for theirs, _ in mapping.values()}
    free = dict.fromkeys(column for _, columns in files for column in columns if column not in taken)
    source.refuse(
        f"a table of phase {phase} needs more columns",
        got=wording.one_of(mapping),
        allowed=f"also {wording.one_of(lacking)}",
        way_out=f"add them to --columns; columns of the file not taken yet: {wording.one_of(free)}",
    )


def _checked_unit(column: str, theirs: str, unit: str, source: SourceFiles) -> str | None:
    kind = "s" if column.endswith("_s") and column != "tokens_per_s" else None
    kind = "mib" if column.endswith("_mib") else kind
    fitting = [name for name, (of, _) in UNITS.items() if of == kind]
    if (kind is None and unit) or (kind is not None and unit not in fitting):
        meant = wording.did_you_mean(unit, fitting) if kind else None
        right = " or ".join(f"{column}={theirs}:{name}" for name in fitting) or f"{column}={theirs}"
        source.refuse(
            f"--columns must state the unit of {column}" if kind else f"{column} is a plain number",
            got=unit or "no unit",
            allowed=wording.one_of(fitting) if kind else "no unit",
            way_out=meant or f"write {right}",
        )
    return unit or None


def _point(record: SourceRecord, mapping: _Mapping, facts: ImportFacts, phase: Phase) -> Point:
    values: dict[str, Any] = {name: value for name, value in layout_of(facts).items() if name not in mapping}
    for ours, (theirs, unit) in mapping.items():
        if theirs not in record.fields:
            continue
        if ours == "status":
            values[ours] = record.fields[theirs]
            continue
        number = record.number(theirs)
        if number is None:
            raise BadRow(f"{theirs} is not a finite number: {record.fields[theirs]}")
        values[ours] = UNITS[unit][1](number) if unit else number
        if ours not in _FRACTIONS and not ours.endswith("_mib"):
            if number != round(number):
                raise BadRow(f"{theirs} is not a whole number: {number:g}")
            values[ours] = round(number)
    _decode_definition(values, facts, phase)
    try:
        point = msgspec.convert(values, Point)
    except msgspec.ValidationError as problem:
        raise BadRow(str(problem)) from None
    if point.status == "ok" and point.time_s is None:
        raise BadRow("no time, and no status that says why")
    return point


def _decode_definition(values: dict[str, Any], facts: ImportFacts, phase: Phase) -> None:
    """Turn e2e ÷ output into (e2e − ttft) ÷ (output − 1)."""
    if phase != "serve" or facts.tpot_definition != "e2e" or "time_s" not in values:
        return
    output, ttft = values.get("output_tokens", 0), values.get("ttft_s")
    if ttft is None or output < 2:
        raise BadRow("no time to the first token, or no token after it")
    decode = values["time_s"] * output - ttft
    if decode <= 0:
        raise BadRow(
            f"e2e {values['time_s'] * output:.4g} s is not above ttft {ttft:.4g} s: the definition is another"
        )
    values["time_s"] = decode / (output - 1)


FORMAT = Format(
    "csv",
    "any CSV table, columns mapped by --columns",
    (".csv",),
    ("gpu_class", "model", "precision", "framework", "framework_version", "phase", "columns"),
    _read,
)
