"""`profile`: measure, import, fit, check and ask profiles, and compare them with what runs take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.flags import AllowPrior, Form, FormOption
from libra_plan.cli.program import app
from libra_plan.cli.throughput_verbs import (
    GpusOfLog,
    ReaderOption,
    Recordings,
    SamplesOfLog,
    SourceFormat,
    TaskOfLog,
)
from libra_plan.errors import InputError

_profile = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure, import, fit, check and ask profiles.\n\nExample: libra-plan profile check profiles/",
)
app.add_typer(_profile, name="profile")

ProfilesPath = Annotated[
    Path, typer.Argument(help="Profiles folder, or one profile's folder; `profiles` is the shipped one.")
]
Out = Annotated[Path, typer.Option(help="Folder that takes the profiles.")]
_SHOWN_LEFT_OUT = 5
_FIT = (
    "Fit every profile, keep the fits in the cache, and print their coefficients.\n\n"
    "Example: libra-plan profile fit profiles/"
)
_CHECK = (
    "Check how well each profile predicts points it was not fitted to: every point is predicted with "
    "its whole group (one batch, one length or one place) left out. Prints errors, how often bounds hold, "
    "and the worst points with file and line.\n\n"
    "Example: libra-plan profile check profiles/ --plot check.svg"
)
_PREDICT = (
    "Predict time and memory for every row of a CSV file, or say why not.\n\n"
    "Columns: role (decode, serve, score, train), model, precision, recompute, mode, batch, seq_len; for "
    "serving tables isl, osl, tp; also pp, cp, ep, dp, framework, gpu_class, profile. Cells that are not "
    "needed may be empty, and other columns are left alone. A row that cannot be answered is refused with "
    "its reason and the others are answered.\n\n"
    "Example: libra-plan profile predict profiles/ --points points.csv --format json"
)
_MEASURE = (
    "Measure a model's roles on the local GPU, with random weights, and write profiles.\n\n"
    "Example: libra-plan profile measure qwen2.5-7b --out profiles/ --budget-s 1200\n\n"
    "A run that was stopped goes on where it was when the command is given again. Needs PyTorch and "
    "Transformers: pip install '.[torch]' from a checkout, or the packages torch and transformers."
)
_IMPORT = (
    "Turn benchmark results or training logs into profiles.\n\n"
    "Example: libra-plan profile import vllm-serve results/ --out profiles/ --gpu-class h200_sxm "
    "--model qwen2.5-7b --precision bf16 --framework-version 0.12.0 --tp 1\n\n"
    "What a file does not say is demanded by name, as a flag of its own. --list names the formats and flags."
)
_DRIFT = (
    "Compare observed times with the profiles that predicted them, and print how far each is off.\n\n"
    "Windows that state batch and length are compared with the role's profile; those of trainers' logs with "
    "the plan's stage times (--run). --out writes the factors for `solve --corrections`; with --from they "
    "are gone on from.\n\n"
    "Example: libra-plan profile drift profiles/ run/telemetry --out run/corrections.json"
)


@_profile.command("fit", help=_FIT)
def _fit(profiles: ProfilesPath, form: FormOption = Form.TABLE) -> None:
    from libra_plan.planner.report.profile_tables import fit_data, fit_note, fit_table

    begun = time.perf_counter()
    fits = lp.fit_profiles(profiles)
    render.note(fit_note(fits, time.perf_counter() - begun))
    if form is Form.TABLE:
        render.print_text(fit_table(fits, render.page()))
    else:
        render.print_data(fit_data(fits), form.value)


@_profile.command("check", help=_CHECK)
def _check(
    profiles: ProfilesPath,
    plot: Annotated[
        Path | None,
        typer.Option(help="Picture of predicted against measured: .png or .svg; needs matplotlib."),
    ] = None,
    worst: Annotated[int, typer.Option(help="How many of the worst points to list.", min=0)] = 10,
    form: FormOption = Form.TABLE,
) -> None:
    from libra_plan.planner.report.profile_tables import check_data, check_text

    checks = lp.check_profiles(profiles, plot=plot)
    if plot is not None:
        render.note(f"written: {plot}")
    if form is Form.TABLE:
        render.print_text(check_text(checks, worst, render.page()))
    else:
        render.print_data(check_data(checks, worst), form.value)


@_profile.command("predict", help=_PREDICT)
def _predict(
    profiles: ProfilesPath,
    points: Annotated[Path, typer.Option(help="CSV file, one question a row.")],
    set_: Annotated[
        str | None, typer.Option("--set", help="Take profiles whose id begins with this and a hyphen.")
    ] = None,
    allow_prior: AllowPrior = False,
    form: FormOption = Form.TABLE,
) -> None:
    from libra_plan.planner.report.profile_tables import answer_data, answer_note, answer_table

    begun = time.perf_counter()
    found = lp.predict_costs(profiles, points, set_name=set_, allow_prior=allow_prior)
    for line in found.notes:
        render.note(line)
    render.note(answer_note(found, time.perf_counter() - begun))
    if form is Form.TABLE:
        render.print_text(answer_table(found, render.page()))
    else:
        render.print_data(answer_data(found), form.value)
    found.require_answers()


@_profile.command("measure", help=_MEASURE)
def _measure(
    model: Annotated[str, typer.Argument(help="A known model, or the path of a Hugging Face config.json.")],
    out: Out,
    phases: Annotated[
        str, typer.Option(help="What to measure: of decode, decode-gqa, score, train, train-accumulated.")
    ] = "decode,score,train",
    plan: Annotated[
        Path | None, typer.Option(help="CSV of work,batch_sequences,seq_len_tokens to measure instead.")
    ] = None,
    budget_s: Annotated[
        float | None, typer.Option("--budget-s", help="Stop cleanly after so many seconds.", min=0.0)
    ] = None,
    repeats: Annotated[int, typer.Option(help="Repeats of a point.", min=1)] = 5,
    warmup: Annotated[int, typer.Option(help="Steps before the first repeat.", min=0)] = 2,
    point_s: Annotated[
        float, typer.Option("--point-s", help="Seconds after which no repeat of a point starts.", min=0.0)
    ] = 10.0,
    train_precision: Annotated[str, typer.Option(help="auto, bf16 or fp32-master/bf16.")] = "auto",
    prefix: Annotated[str | None, typer.Option(help="First part of the ids; default: GPU class.")] = None,
    gpu_class: Annotated[str | None, typer.Option(help="The cluster's word for this GPU.")] = None,
    device: Annotated[str | None, typer.Option(help="cuda:0, cuda:1, cpu …")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    form: FormOption = Form.TABLE,
) -> None:
    from libra_plan.planner.report.profile_tables import measure_data, measure_table

    report = lp.measure_profile(
        model,
        out,
        [phase.strip() for phase in phases.split(",") if phase.strip()],
        plan=plan,
        budget_s=budget_s,
        warmup=warmup,
        repeats=repeats,
        point_s=point_s,
        seed=seed,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        prefix=prefix,
        device=device,
        train_precision=train_precision,
        gpu_class=gpu_class,
        notes=render.note,
    )
    if not report.complete:
        render.note("not every point was measured; the same command goes on from here")
    if form is Form.TABLE:
        render.print_text(measure_table(report, render.page()))
    else:
        render.print_data(measure_data(report), form.value)


@_profile.command(
    "import", help=_IMPORT, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def _import(
    context: typer.Context,
    format_name: Annotated[
        str | None, typer.Argument(metavar="FORMAT", help="The source's format; --list names them.")
    ] = None,
    source: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="File, or folder of files, to import.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder that takes the profiles.")] = None,
    replace: Annotated[bool, typer.Option(help="Write over profiles of the same id in --out.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the formats and the facts to state.")] = False,
    form: FormOption = Form.TABLE,
) -> None:
    from libra_plan.planner.report import profile_tables as tables

    if list_:
        if form is Form.TABLE:
            render.print_text(tables.formats_text(render.page()))
        else:
            render.print_data(tables.formats_data(), form.value)
        return
    if format_name is None or source is None or out is None:
        given = [str(each) for each in (format_name, source, out) if each is not None]
        raise InputError(
            "import needs a format, a source and a folder",
            got=" ".join(given) or "none of them",
            allowed=f"one of {', '.join(tables.formats_data()['formats'])}; a file or folder; --out DIR",
            way_out="libra-plan profile import --list shows formats and flags",
        )
    report = lp.import_profile(format_name, source, out, replace=replace, **_facts(context.args))
    for line in report.warnings:
        render.note(f"warning: {line}")
    for each in report.quarantined:
        render.note(f"kept out: {each.where}: {each.reason}")
    if form is Form.TABLE:
        render.print_text(tables.import_table(report, render.page()))
    else:
        render.print_data(tables.import_data(report), form.value)


def _facts(arguments: Sequence[str]) -> dict[str, str]:
    """Pair `--name value` and `--name=value`; a fact is stated once."""
    facts: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise InputError(
                "not a flag", got=word, allowed="--NAME VALUE", way_out="libra-plan profile import --list"
            )
        name, equals, value = word[2:].partition("=")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise InputError(f"--{name} has no value", allowed=f"--{name} VALUE")
            value = rest.pop(0)
        fact = name.replace("-", "_")
        if fact in facts:
            raise InputError(f"--{name} is given twice", got=f"{facts[fact]} and {value}", allowed="once")
        facts[fact] = value
    return facts


@_profile.command("drift", help=_DRIFT)
def _drift(
    profiles: Annotated[Path, typer.Argument(help="Profiles folder with workload.yaml.")],
    recordings: Recordings,
    reader: ReaderOption = SourceFormat.COUNTER,
    task: TaskOfLog = "",
    gpus: GpusOfLog = None,
    samples: SamplesOfLog = None,
    run: Annotated[Path | None, typer.Option(help="Manifest, or folder of the plan that ran.")] = None,
    gpu_class: Annotated[str | None, typer.Option(help="GPU class, when profiles have several.")] = None,
    before: Annotated[
        Path | None, typer.Option("--from", help="Corrections to go on from; the plan's, if it had any.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write the corrections to.")] = None,
    form: FormOption = Form.TABLE,
) -> None:
    from libra_plan.planner.report.profile_tables import drift_data, drift_table

    found = lp.drift(
        profiles,
        recordings,
        reader=reader.value,
        task=task,
        gpus=gpus,
        samples=samples,
        run=run,
        gpu_class=gpu_class,
        before=before,
        out=out,
    )
    if out is not None:
        render.note(f"written: {out}")
    if form is Form.TABLE:
        render.print_text(drift_table(found.roles, render.page()))
    else:
        render.print_data(drift_data(found.roles), form.value)
    for each in found.left_out[:_SHOWN_LEFT_OUT]:
        render.note(f"left out: {each.where}: {each.reason}")
