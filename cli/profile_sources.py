"""`profile measure` and `profile import`: where profiles come from."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.flags import Form, FormOption
from libra_plan.errors import InputError

if TYPE_CHECKING:
    from libra_plan.profiles.measure.measure import MeasureReport

__all__ = ["register"]

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
_EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}

Out = Annotated[Path, typer.Option(help="Folder that takes the profiles.")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(help=_MEASURE)(measure)
    app.command("import", help=_IMPORT, context_settings=_EXTRA)(import_)


def measure(
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
    """Measure and write profiles."""
    from libra_plan.profiles.measure.measure import measure_profile
    from libra_plan.profiles.measure.runner import MeasureSettings

    report = measure_profile(
        model,
        out,
        tuple(phase.strip() for phase in phases.split(",") if phase.strip()),
        plan=plan,
        budget_s=budget_s,
        settings=MeasureSettings(warmup=warmup, repeats=repeats, point_s=point_s),
        seed=seed,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        prefix=prefix,
        device=device,
        train_precision=train_precision,
        gpu_class=gpu_class,
        notes=render.note,
    )
    _print_measured(report, form)


def _print_measured(report: MeasureReport, form: Form) -> None:
    if not report.complete:
        render.note("not every point was measured; the same command goes on from here")
    counts = {name: render.as_data(each) for name, each in report.counts.items()}
    if form is Form.TABLE:
        rows = [
            [name, *(str(each.get(key, 0)) for key in ("ok", "oom", "failed", "done_before", "left"))]
            for name, each in counts.items()
        ]
        columns = ["profile", "measured", "out of memory", "failed", "done before", "left"]
        render.print_table(columns, rows, right=range(1, 6))
    else:
        folders = [str(folder) for folder in report.folders]
        render.print_data({"folders": folders, "journal": str(report.journal), "counts": counts}, form.value)


def import_(
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
    """Import a source."""
    from libra_plan.profiles.importers.run import FORMATS, import_profile

    if list_:
        _list_formats(form)
        return
    if format_name is None or source is None or out is None:
        raise InputError(
            "import needs a format, a source and a folder",
            got=" ".join(str(each) for each in (format_name, source, out) if each is not None)
            or "none of them",
            allowed=f"one of {', '.join(FORMATS)}; a file or folder; --out DIR",
            way_out="libra-plan profile import --list shows formats and flags",
        )
    report = import_profile(format_name, source, out, replace=replace, **_flags(context.args))
    for line in report.warnings:
        render.note(f"warning: {line}")
    for each in report.quarantined:
        render.note(f"kept out: {each.where}: {each.reason}")
    if form is Form.TABLE:
        rows = [
            [folder.name, str(report.kept.get(folder.name, "?")), str(folder)] for folder in report.folders
        ]
        render.print_table(["profile", "rows", "folder"], rows, right=(1,))
    else:
        folders = [str(folder) for folder in report.folders]
        data = render.as_data(dataclasses.replace(report, folders=())) | {"folders": folders}
        render.print_data(data, form.value)


def _flags(arguments: Sequence[str]) -> dict[str, str]:
    """Pair `--name value` and `--name=value`; a fact is stated once."""
    flags: dict[str, str] = {}
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
        if name.replace("-", "_") in flags:
            raise InputError(f"--{name} is given twice", got=f"{flags[name]} and {value}", allowed="once")
        flags[name.replace("-", "_")] = value
    return flags


def _list_formats(form: Form) -> None:
    from libra_plan.profiles.importers.facts import FLAGS, flag_name
    from libra_plan.profiles.importers.run import FORMATS

    needs = {name: [flag_name(need) for need in each.needs] for name, each in FORMATS.items()}
    if form is not Form.TABLE:
        formats = {
            name: {"summary": each.summary, "endings": list(each.endings), "needs": needs[name]}
            for name, each in FORMATS.items()
        }
        flags = {
            flag_name(name): {"means": each.allowed, "example": each.example} for name, each in FLAGS.items()
        }
        render.print_data({"formats": formats, "flags": flags}, form.value)
        return
    rows = [[name, each.summary, " ".join(needs[name])] for name, each in FORMATS.items()]
    render.print_table(["format", "what it is", "always needs"], rows)
    render.print_text("")
    flag_rows = [[flag_name(name), each.allowed, each.example] for name, each in FLAGS.items()]
    render.print_table(["flag", "means", "example"], flag_rows)
