"""AIConfigurator's table of measured serving runs (`silicon_sample.csv`).

A row says system, model, engine, version, precision, layout, prompt and output length, requests in
flight, and measured TTFT and TPOT in ms. Engine version and precision are empty in some rows: they
must then be stated. One profile per system, model, engine, version and precision.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from libra_plan.errors import InputError, ProfileError, Where
from libra_plan.profiles import wording
from libra_plan.profiles.importers.base import (
    BadRow,
    Format,
    ProfileDraft,
    Reading,
    SourceRow,
    draft_of,
    usable,
)
from libra_plan.profiles.importers.facts import ImportFacts, demand
from libra_plan.profiles.importers.records import SourceFiles, SourceRecord, columns_by_file, records
from libra_plan.profiles.importers.serving import TPOT_DEFINITION
from libra_plan.profiles.model_shapes import model_shape, plain_name
from libra_plan.profiles.schema import Method, ModelShape, Point

__all__ = ["FORMAT"]

_WHAT = "the AIConfigurator table"
_METHOD = Method(tokens_counted="output", throughput_basis="per_gpu", tpot_definition=TPOT_DEFINITION)
_Stack = tuple[str, str, str, str, str]


def _read(source: SourceFiles, facts: ImportFacts) -> Reading:
    _require_columns(facts.select, source)
    chosen = [record for record in records(source) if _selected(record, facts.select)]
    if not chosen:
        picked = ", ".join(f"{key}={value}" for key, value in facts.select.items()) or "no selection"
        raise ProfileError(
            "no row of the table is selected",
            got=picked,
            way_out="loosen --select: its columns are those of the table",
            where=Where(source.path),
        )
    _complete(chosen, facts, source)
    stacks: dict[_Stack, list[SourceRow]] = {}
    shapes: dict[str, ModelShape] = {}

    def keep(record: SourceRecord) -> None:
        stack = _stack(record, facts)
        shape = shapes.setdefault(stack[1], facts.model or _shape(stack[1], source))
        stacks.setdefault(stack, []).append(_row(record, shape))

    _, rejected = usable(chosen, keep)
    drafts = tuple(_draft(facts, stack, shapes[stack[1]], rows) for stack, rows in sorted(stacks.items()))
    return Reading(drafts, rejected)


def _require_columns(select: Mapping[str, str], source: SourceFiles) -> None:
    """Refuse to select by a column that the table lacks: `precison=` would match every row."""
    columns = list(dict.fromkeys(each for _, names in columns_by_file(source) for each in names))
    for column in select:
        if column not in columns:
            source.refuse(
                "--select names no column of the table",
                got=column,
                allowed=wording.one_of(columns),
                way_out=wording.did_you_mean(column, columns) or "the first row names the columns",
            )


def _selected(record: SourceRecord, select: Mapping[str, str]) -> bool:
    return all(str(record.fields.get(column, "")) == value for column, value in select.items())


def _complete(chosen: list[SourceRecord], facts: ImportFacts, source: SourceFiles) -> None:
    """Demand what some selected row leaves empty."""
    lacking = []
    if any(not record.fields.get("backend_version") for record in chosen):
        lacking.append("framework_version")
    if any(not record.fields.get("precision") for record in chosen):
        lacking.append("precision")
    demand(facts, lacking, f"some selected row of {_WHAT}", source.path)


def _shape(model: str, source: SourceFiles) -> ModelShape:
    try:
        return model_shape(model)
    except InputError as problem:
        source.refuse(
            f"the shape of {model} is unknown",
            allowed=problem.allowed,
            way_out="add --model with the path of its config.json and --select for its rows",
        )


def _stack(record: SourceRecord, facts: ImportFacts) -> _Stack:
    fields = record.fields
    system, model, backend = (str(fields.get(key, "")) for key in ("system", "model_path", "backend"))
    if not (system and model and backend):
        raise BadRow("system, model_path or backend is empty")
    if fields.get("mode", "agg") != "agg":
        raise BadRow(f"mode {fields['mode']}: prefill and decode on GPUs of their own have no phase here")
    version = str(fields.get("backend_version") or facts.framework_version)
    return system, plain_name(model), backend, version, str(fields.get("precision") or facts.precision)


def _row(record: SourceRecord, shape: ModelShape) -> SourceRow:
    def whole(name: str, empty: int | None = None) -> int:
        value = record.positive(name)
        if value is None and empty is not None:
            return empty
        if value is None or value != round(value):
            raise BadRow(f"{name} is not a whole number above 0")
        return round(value)

    tp, ranks = whole("tp_size"), whole("attention_dp_size", 1)
    if ranks > 1:
        raise BadRow(
            f"attention_dp_size {ranks}: data-parallel attention inside one engine has no column here"
        )
    experts = whole("moe_ep_size", 1) if shape.experts else 1
    if shape.experts and whole("moe_tp_size", 1) * experts != tp:
        raise BadRow(f"moe_tp_size × moe_ep_size is not tp_size {tp}")
    ttft, tpot = record.positive("silicon_ttft_ms"), record.positive("silicon_tpot_ms")
    if ttft is None or tpot is None:
        raise BadRow("silicon_ttft_ms or silicon_tpot_ms is missing or not above 0")
    point = Point(
        batch_sequences=whole("batch_size"),
        prompt_tokens=whole("isl"),
        output_tokens=whole("osl"),
        tp=tp,
        pp=whole("pp_size", 1),
        ep=experts,
        time_s=tpot / 1e3,
        ttft_s=ttft / 1e3,
        tokens_per_s=record.positive("output_tokens_per_s_per_gpu"),
    )
    return SourceRow(record.where, point)


def _draft(facts: ImportFacts, stack: _Stack, shape: ModelShape, rows: list[SourceRow]) -> ProfileDraft:
    system, _, backend, version, precision = stack
    named = dataclasses.replace(
        facts,
        gpu_class=system,
        model=shape,
        framework=backend,
        framework_version=version,
        precision=precision,
        id=None,
    )
    parts = (facts.id or "aic", system.removesuffix("_sxm"), shape.id, backend, version, precision)
    name = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", part) for part in parts if part != "unstated")
    draft = draft_of(named, "", "serve", rows, _METHOD)
    return dataclasses.replace(draft, id=name[:63].rstrip("-._"))


FORMAT = Format("aiconfigurator", "AIConfigurator's measured serving rows, CSV", (".csv",), (), _read)
