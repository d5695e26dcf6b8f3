"""Tables of profiles: fits, checks, predictions, measurements, imports and drift."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from libra_plan.models.assess import CostAnswers
from libra_plan.models.corrections import LEAST_WINDOWS
from libra_plan.models.curves.curve import Curve
from libra_plan.models.curves.errors import Errors, ProfileCheck
from libra_plan.models.curves.layouts import LayoutFit, why_no_curve
from libra_plan.models.fit import FittedProfile
from libra_plan.models.questions import BadQuestion, CostQuestion
from libra_plan.planner.report.text_table import PLAIN, Page, table_text
from libra_plan.planner.telemetry.drift import RoleDrift
from libra_plan.profiles.counting import counted
from libra_plan.profiles.importers.facts import FLAGS, flag_name
from libra_plan.profiles.importers.run import FORMATS, ImportReport
from libra_plan.profiles.measure.measure import MeasureReport

__all__ = [
    "answer_data",
    "answer_note",
    "answer_table",
    "check_data",
    "check_text",
    "drift_data",
    "drift_table",
    "fit_data",
    "fit_note",
    "fit_table",
    "formats_data",
    "formats_text",
    "import_data",
    "import_table",
    "measure_data",
    "measure_table",
]

_COVERED = (
    "covered: share of the points, each predicted without its group, that lie within the bounds stated for "
    "them (time: both sides, meant to hold 90 % of the time; memory: the upper bound, 95 %)"
)
_FIT = ("profile", "layout", "of", "places", "form", "bounds", "coefficients")
_CHECK = (
    *("profile", "layout", "time median", "p90", "covered"),
    *("memory median", "p90", "covered", "why not"),
)
_WORST = ("where", "of", "layout", "batch", "length", "left out", "measured", "predicted", "error")
_ANSWER = (
    *("line", "role", "profile", "asked", "time s", "low", "high", "tokens /s"),
    *("memory MiB", "upper", "origin", "refusal"),
)
_REPEATED = ("role", "model", "precision", "recompute", "mode", "batch", "seq_len", "isl", "osl", "tp")
_DRIFT = ("task", "role", "compared with", "layout", "takes", "bounds", "windows", "changes", "left out")
_COUNTS = {
    "measured": "ok",
    "out of memory": "oom",
    "failed": "failed",
    "done before": "done_before",
    "left": "left",
}


# ---------------------------------------------------------------- fits


def fit_table(fits: Mapping[str, FittedProfile], page: Page = PLAIN) -> str:
    """Return a table of the coefficients of every fit."""
    rows = [
        [name, str(each.layout), *_curve_cells(quantity, each, curve)]
        for name, fitted in fits.items()
        for each in fitted.fits
        for quantity, curve in (("time s", each.time), ("memory MiB", each.memory))
    ]
    return table_text(_FIT, rows, (3,), page)


def fit_note(fits: Mapping[str, FittedProfile], took_s: float) -> str:
    """Return a line about how many profiles were fitted."""
    return f"{counted(len(fits), 'profile')} fitted in {took_s:.2f} s"


def fit_data(fits: Mapping[str, FittedProfile]) -> dict[str, Any]:
    """Return coefficients and bounds as plain data."""
    return {name: [_coefficients(each) for each in fitted.fits] for name, fitted in fits.items()}


def _coefficients(fit: LayoutFit) -> dict[str, Any]:
    data: dict[str, Any] = {"layout": str(fit.layout), "data_parallel": fit.base_dp}
    for name, curve in (("time_s", fit.time), ("memory_mib", fit.memory)):
        data[name] = None
        if curve is not None:
            data[name] = {
                "form": _form(curve),
                "coefficients": msgspec.structs.asdict(curve.form),
                "places": len(curve.samples),
                "ln_bounds": {
                    "inside": [curve.inside_low, curve.inside_high],
                    "one_octave_outside": [curve.outside_low, curve.outside_high],
                },
            }
    return data


def _curve_cells(quantity: str, fit: LayoutFit, curve: Curve | None) -> list[str]:
    if curve is None:
        places = "" if quantity.startswith("memory") else str(fit.samples)
        return [quantity, places, f"no fit: {why_no_curve(fit, quantity.partition(' ')[0])}", "", ""]
    words = " ".join(f"{key}={value:.4g}" for key, value in msgspec.structs.asdict(curve.form).items())
    bounds = f"−{-math.expm1(-curve.inside_low):.1%} +{math.expm1(curve.inside_high):.1%}"
    return [quantity, str(len(curve.samples)), _form(curve), bounds, words]


def _form(curve: Curve) -> str:
    return type(curve.form).__name__.removesuffix("Form")


# ---------------------------------------------------------------- checks


def check_text(checks: Sequence[ProfileCheck], worst: int, page: Page = PLAIN) -> str:
    """Return a table of errors, what its columns mean, and the worst points."""
    rows = [
        [
            check.profile,
            str(each.layout),
            *_error_cells(each.time),
            *_error_cells(each.memory),
            "; ".join(
                f"{name}: {why}" for name, why in (("time", each.no_time), ("memory", each.no_memory)) if why
            ),
        ]
        for check in checks
        for each in check.layouts
    ]
    width = len(_CHECK) if any(row[-1] for row in rows) else len(_CHECK) - 1
    parts = [table_text(_CHECK[:width], [row[:width] for row in rows], range(2, 8), page), _COVERED]
    listed = sorted((point for check in checks for point in check.left_out), key=lambda p: -abs(p.error))
    points = [
        [
            *(p.where, p.quantity, str(p.layout), f"{p.batch:g}", f"{p.length:g}", p.left_out),
            *(f"{p.measured:.5g}", f"{p.predicted:.5g}", f"{p.error:+.1%}"),
        ]
        for p in listed[:worst]
    ]
    if points:
        parts += ["\nworst points:", table_text(_WORST, points, (3, 4, 6, 7, 8), page)]
    return "\n".join(parts)


def check_data(checks: Sequence[ProfileCheck], worst: int) -> list[dict[str, Any]]:
    """Return checks as plain data, each with up to `worst` of its worst points."""
    data = msgspec.to_builtins(checks, str_keys=True)
    for each in data:
        each["worst"] = each.pop("left_out")[:worst]
    return list(data)


def _error_cells(errors: Errors | None) -> list[str]:
    if errors is None:
        return ["–", "–", "–"]
    return [f"{errors.median:.2%}", f"{errors.p90:.2%}", f"{errors.covered:.0%}"]


# ---------------------------------------------------------------- predictions


def answer_table(found: CostAnswers, page: Page = PLAIN) -> str:
    """Return a table of predictions, each with its question."""
    rows = []
    for question, answer in zip(found.questions, found.answers, strict=True):
        refusal = answer.refusal or answer.memory_refusal
        numbers = (
            *(answer.time_s, answer.time_low_s, answer.time_high_s, answer.tokens_per_s),
            *(answer.memory_mib, answer.memory_upper_mib),
        )
        rows.append(
            [
                str(question.line),
                _asked(question)["role"] or "",
                answer.profile or "",
                _query_words(question, answer.profile),
                *("?" if value is None else f"{value:.5g}" for value in numbers),
                answer.origin or "?",
                "" if refusal is None else refusal.message,
            ]
        )
    return table_text(_ANSWER, rows, (0, 4, 5, 6, 7, 8, 9), page)


def answer_note(found: CostAnswers, took_s: float) -> str:
    """Return a line about how many questions were answered."""
    rows = counted(len(found.answers), "row")
    return f"{rows}, {found.refused} refused, in {took_s:.2f} s, fits included"


def answer_data(found: CostAnswers) -> list[dict[str, Any]]:
    """Return predictions as plain data with their questions, so that rows can be joined to the file."""
    pairs = zip(found.questions, found.answers, strict=True)
    return [_asked(question) | msgspec.to_builtins(answer, str_keys=True) for question, answer in pairs]


def _asked(question: CostQuestion | BadQuestion) -> dict[str, Any]:
    if isinstance(question, BadQuestion):
        return {"line": question.line} | {name: question.said.get(name) for name in _REPEATED}
    query = question.query
    return {
        "line": question.line,
        "role": question.phase,
        "model": question.model,
        "precision": question.precision,
        "recompute": question.recompute,
        "mode": question.mode,
        "batch": query.batch_sequences,
        "seq_len": query.seq_len_tokens,
        "isl": query.prompt_tokens,
        "osl": query.output_tokens,
        "tp": query.layout.tp,
    }


def _query_words(question: CostQuestion | BadQuestion, profile: str | None) -> str:
    """Return the query, with its model where no profile answers, or the cells of a bad row."""
    if isinstance(question, BadQuestion):
        cells = {
            name: cell for name, cell in _asked(question).items() if name not in ("line", "role") and cell
        }
        return ", ".join(f"{name} {cell}" for name, cell in cells.items())
    return str(question.query) if profile is not None else f"{question.model}, {question.query}"


# ---------------------------------------------------------------- measurements and imports


def measure_table(report: MeasureReport, page: Page = PLAIN) -> str:
    """Return a table of the planned points and their outcomes."""
    rows = [
        [name, *(str(getattr(counts, key)) for key in _COUNTS.values())]
        for name, counts in report.counts.items()
    ]
    return table_text(("profile", *_COUNTS), rows, range(1, 6), page)


def measure_data(report: MeasureReport) -> dict[str, Any]:
    """Return a measurement as plain data."""
    counts = msgspec.to_builtins(dict(report.counts))
    folders = [str(folder) for folder in report.folders]
    return {"folders": folders, "journal": str(report.journal), "counts": counts}


def import_table(report: ImportReport, page: Page = PLAIN) -> str:
    """Return a table of the profiles that were imported."""
    rows = [[each.name, str(report.kept.get(each.name, "?")), str(each)] for each in report.folders]
    return table_text(("profile", "rows", "folder"), rows, (1,), page)


def import_data(report: ImportReport) -> dict[str, Any]:
    """Return an import as plain data."""
    return {
        "folders": [str(folder) for folder in report.folders],
        "kept": report.kept,
        "quarantined": msgspec.to_builtins(list(report.quarantined)),
        "warnings": list(report.warnings),
    }


def formats_text(page: Page = PLAIN) -> str:
    """Return the formats that can be imported, and the flags that state what they do not say."""
    formats = [[name, each.summary, " ".join(map(flag_name, each.needs))] for name, each in FORMATS.items()]
    flags = [[flag_name(name), each.allowed, each.example] for name, each in FLAGS.items()]
    above = table_text(("format", "what it is", "always needs"), formats, (), page)
    return f"{above}\n\n{table_text(('flag', 'means', 'example'), flags, (), page)}"


def formats_data() -> dict[str, Any]:
    """Return formats and flags as plain data."""
    return {
        "formats": {
            name: {
                "summary": each.summary,
                "endings": list(each.endings),
                "needs": [flag_name(need) for need in each.needs],
            }
            for name, each in FORMATS.items()
        },
        "flags": {
            flag_name(name): {"means": each.allowed, "example": each.example} for name, each in FLAGS.items()
        },
    }


# ---------------------------------------------------------------- drift


def drift_table(roles: Collection[RoleDrift], page: Page = PLAIN) -> str:
    """Return a table of how far each profile is off."""
    rows = []
    for each in drift_data(roles):
        off, bounds = "?", ""
        reasons = [f"{count} × {reason}" for reason, count in each["left_out"].items()]
        if each["factor"] is None:
            reasons.insert(0, f"a factor takes {LEAST_WINDOWS} windows")
        else:
            off, bounds = f"{each['factor'] - 1:+.1%}", f"{each['low'] - 1:+.1%} – {each['high'] - 1:+.1%}"
        against = each["profile"] or ("the plan" if each["windows"] else "")
        counts = (str(each["windows"]), str(each["changes"]))
        rows.append(
            [each["task"], each["role"], against, each["layout"], off, bounds, *counts, "; ".join(reasons)]
        )
    return table_text(_DRIFT, rows, (4, 6, 7), page)


def drift_data(roles: Collection[RoleDrift]) -> list[dict[str, Any]]:
    """Return corrections as plain data."""
    data = []
    for found in roles:
        own = found.correction
        low, high = own.state.bounds
        known = own.state.known
        data.append(
            {
                "task": own.task,
                "role": own.role,
                "basis": own.basis,
                "profile": own.profile,
                "layout": str(own.layout),
                "factor": own.state.factor if known else None,
                "low": low if known else None,
                "high": high if known else None,
                "windows": own.state.observations,
                "newly_taken": found.taken,
                "changes": own.state.changes,
                "left_out": dict(found.left_out),
            }
        )
    return data
