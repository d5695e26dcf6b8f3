"""`profile fit`, `check` and `predict`: what the cost models make of measured points."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import writing
from libra_plan.cli.flags import AllowPrior, Form, FormOption
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.models.curves.curve import Curve
    from libra_plan.models.curves.errors import Errors, ProfileCheck
    from libra_plan.models.curves.layouts import LayoutFit
    from libra_plan.models.fit import FittedProfile
    from libra_plan.models.predict import CostPrediction
    from libra_plan.models.questions import BadQuestion, CostQuestion
    from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure, import, fit, check and ask profiles.\n\nExample: libra-plan profile check profiles/",
)

ProfilesPath = Annotated[
    Path, typer.Argument(help="Profiles folder, or one profile's folder; `profiles` is the shipped one.")
]
_WORST = 10
_COVERED = (
    "covered: share of the points, each predicted without its group, that lie within the bounds stated for "
    "them (time: both sides, meant to hold 90 % of the time; memory: the upper bound, 95 %)"
)
_REPEATED = ("role", "model", "precision", "recompute", "mode", "batch", "seq_len", "isl", "osl", "tp")


@app.command(
    help="Fit every profile, keep the fits in the cache, and print their coefficients.\n\n"
    "Example: libra-plan profile fit profiles/"
)
def fit(profiles: ProfilesPath, form: FormOption = Form.TABLE) -> None:
    """Fit and print coefficients."""
    begun = time.perf_counter()
    fits = {name: _fit(profile) for name, profile in _load(profiles).items()}
    render.note(f"{counted(len(fits), 'profile')} fitted in {time.perf_counter() - begun:.2f} s")
    if form is not Form.TABLE:
        data = {name: [_coefficients(each) for each in fitted.fits] for name, fitted in fits.items()}
        render.print_data(data, form.value)
        return
    rows = [
        [name, str(each.layout), *_curve_cells(quantity, each, curve)]
        for name, fitted in fits.items()
        for each in fitted.fits
        for quantity, curve in (("time s", each.time), ("memory MiB", each.memory))
    ]
    render.print_table(["profile", "layout", "of", "places", "form", "bounds", "coefficients"], rows, (3,))


@app.command(
    help="Say how well each profile predicts points it was not fitted to: every point is predicted with "
    "its whole group (one batch, one length or one place) left out. Prints errors, how often bounds hold, "
    "and the worst points with file and line.\n\n"
    "Example: libra-plan profile check profiles/ --plot check.svg"
)
def check(
    profiles: ProfilesPath,
    plot: Annotated[
        Path | None,
        typer.Option(help="Picture of predicted against measured: .png or .svg; needs matplotlib."),
    ] = None,
    worst: Annotated[int, typer.Option(help="How many of the worst points to list.", min=0)] = _WORST,
    form: FormOption = Form.TABLE,
) -> None:
    """Check and print errors."""
    from libra_plan.models.curves.errors import check_profile

    checks = [check_profile(profile, _fit(profile)) for profile in _load(profiles).values()]
    if plot is not None:
        from libra_plan.models.curves.plot import plot_checks

        with writing(plot):
            plot_checks(checks, plot)
        render.note(f"written: {plot}")
    if form is Form.TABLE:
        _print_checks(checks, worst)
        return
    data = render.as_data(checks)
    for each in data:
        each["left_out"] = each.pop("left_out")[:worst]
        each["worst"] = each.pop("left_out")
    render.print_data(data, form.value)


@app.command(
    help="Predict time and memory for every row of a CSV file, or say why not.\n\n"
    "Columns: role (decode, serve, score, train), model, precision, recompute, mode, batch, seq_len; for "
    "serving tables isl, osl, tp; also pp, cp, ep, dp, framework, gpu_class, profile. Cells that are not "
    "needed may be empty, and other columns are left alone. A row that cannot be answered is refused with "
    "its reason and the others are answered.\n\n"
    "Example: libra-plan profile predict profiles/ --points points.csv --format json"
)
def predict(
    profiles: ProfilesPath,
    points: Annotated[Path, typer.Option(help="CSV file, one question a row.")],
    set_: Annotated[
        str | None, typer.Option("--set", help="Take profiles whose id begins with this and a hyphen.")
    ] = None,
    allow_prior: AllowPrior = False,
    form: FormOption = Form.TABLE,
) -> None:
    """Answer every row of a file."""
    from libra_plan.models.predict import predict as run
    from libra_plan.models.questions import read_questions

    loaded, questions = _load(profiles), read_questions(points)
    if questions.unused:
        render.note(f"columns that were not read: {', '.join(questions.unused)}")
    begun = time.perf_counter()
    answers = run(loaded, questions.rows, fit=_fit, set_name=set_, allow_prior=allow_prior)
    for line in answers.notes:
        render.note(line)
    refused = sum(row.refusal is not None for row in answers.rows)
    render.note(
        f"{counted(len(answers.rows), 'row')}, {refused} refused, "
        f"in {time.perf_counter() - begun:.2f} s, fits included"
    )
    pairs = list(zip(questions.rows, answers.rows, strict=True))
    if form is Form.TABLE:
        _print_predictions(pairs)
    else:
        render.print_data([_asked(question) | render.as_data(row) for question, row in pairs], form.value)


# ---------------------------------------------------------------- inside


def _load(path: Path) -> dict[str, LoadedProfile]:
    """Load the profiles of a folder, or the one profile that the folder is, by name."""
    from libra_plan.errors import ProfileError, Where
    from libra_plan.profiles.catalog import find_folder, load_folder, load_profile

    if (path / "profile.yaml").is_file():
        profile = load_profile(path)
        return {profile.file.id: profile}
    folder: ProfilesFolder = load_folder(find_folder(path))
    if not folder.profiles:
        raise ProfileError(
            "no profile in this folder",
            allowed="sub-folders with profile.yaml and points.csv",
            way_out="libra-plan profile measure or import makes some",
            where=Where(str(folder.path)),
        )
    return dict(sorted(folder.profiles.items()))


def _fit(profile: LoadedProfile) -> FittedProfile:
    from libra_plan.models.fits import cached_fit

    return cached_fit(profile)


def _coefficients(fit_: LayoutFit) -> dict[str, Any]:
    data: dict[str, Any] = {"layout": str(fit_.layout), "data_parallel": fit_.base_dp}
    for name, curve in (("time_s", fit_.time), ("memory_mib", fit_.memory)):
        data[name] = None
        if curve is not None:
            bounds = {"inside": [curve.inside_low, curve.inside_high]}
            bounds["one_octave_outside"] = [curve.outside_low, curve.outside_high]
            data[name] = {
                "form": type(curve.form).__name__.removesuffix("Form"),
                "coefficients": _numbers(curve.form),
                "places": len(curve.samples),
                "ln_bounds": bounds,
            }
    return data


def _curve_cells(quantity: str, fit_: LayoutFit, curve: Curve | None) -> list[str]:
    if curve is None:
        from libra_plan.models.curves.layouts import why_no_curve

        reason = why_no_curve(fit_, quantity.partition(" ")[0])
        places = "" if quantity.startswith("memory") else str(fit_.samples)
        return [quantity, places, f"no fit: {reason}", "", ""]
    words = " ".join(f"{key}={value:.4g}" for key, value in _numbers(curve.form).items())
    bounds = f"−{-math.expm1(-curve.inside_low):.1%} +{math.expm1(curve.inside_high):.1%}"
    return [quantity, str(len(curve.samples)), type(curve.form).__name__.removesuffix("Form"), bounds, words]


def _numbers(form: Any) -> dict[str, float]:
    import msgspec

    return msgspec.structs.asdict(form)


def _print_checks(checks: list[ProfileCheck], worst: int) -> None:
    rows = [
        [
            check.profile,
            str(each.layout),
            *_errors(each.time),
            *_errors(each.memory),
            "; ".join(
                f"{name}: {why}" for name, why in (("time", each.no_time), ("memory", each.no_memory)) if why
            ),
        ]
        for check in checks
        for each in check.layouts
    ]
    columns = [
        "profile",
        "layout",
        "time median",
        "p90",
        "covered",
        "memory median",
        "p90",
        "covered",
        "why not",
    ]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    render.print_table(columns, rows, right=range(2, 8))
    render.print_text(_COVERED)
    _print_worst(checks, worst)


def _print_worst(checks: list[ProfileCheck], worst: int) -> None:
    listed = sorted((point for check in checks for point in check.left_out), key=lambda p: -abs(p.error))
    if not listed or not worst:
        return
    render.print_text("\nworst points:")
    render.print_table(
        ["where", "of", "layout", "batch", "length", "left out", "measured", "predicted", "error"],
        [
            [
                p.where,
                p.quantity,
                str(p.layout),
                f"{p.batch:g}",
                f"{p.length:g}",
                p.left_out,
                f"{p.measured:.5g}",
                f"{p.predicted:.5g}",
                f"{p.error:+.1%}",
            ]
            for p in listed[:worst]
        ],
        right=(3, 4, 6, 7, 8),
    )


def _errors(errors: Errors | None) -> list[str]:
    if errors is None:
        return ["–", "–", "–"]
    return [f"{errors.median:.2%}", f"{errors.p90:.2%}", f"{errors.covered:.0%}"]


def _asked(question: CostQuestion | BadQuestion) -> dict[str, Any]:
    """Repeat what was asked, so that rows can be joined to the file."""
    from libra_plan.models.questions import BadQuestion

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
        "tp": query.tp,
    }


def _print_predictions(pairs: list[tuple[CostQuestion | BadQuestion, CostPrediction]]) -> None:
    rows = []
    for question, row in pairs:
        refusal = row.refusal or row.memory_refusal
        rows.append(
            [
                str(question.line),
                _role_of(question),
                row.profile or "",
                _query_of(question, row.profile),
                *(_cell(value) for value in (row.time_s, row.time_low_s, row.time_high_s, row.tokens_per_s)),
                *(_cell(value) for value in (row.memory_mib, row.memory_upper_mib)),
                row.origin or "?",
                "" if refusal is None else refusal.message,
            ]
        )
    render.print_table(
        [
            "line",
            "role",
            "profile",
            "asked",
            "time s",
            "low",
            "high",
            "tokens /s",
            "memory MiB",
            "upper",
            "origin",
            "refusal",
        ],
        rows,
        right=(0, 4, 5, 6, 7, 8, 9),
    )


def _role_of(question: CostQuestion | BadQuestion) -> str:
    return getattr(question, "phase", None) or _asked(question)["role"] or ""


def _query_of(question: CostQuestion | BadQuestion, profile: str | None) -> str:
    """Say what was asked: the query, with its model where no profile answers, or a bad row's cells."""
    query = getattr(question, "query", None)
    if query is not None:
        model = getattr(question, "model", "") if profile is None else ""
        return f"{model}, {query}" if model else str(query)
    cells = {name: cell for name, cell in _asked(question).items() if name not in ("line", "role") and cell}
    return ", ".join(f"{name} {cell}" for name, cell in cells.items())


def _cell(value: float | None) -> str:
    return "?" if value is None else f"{value:.5g}"
