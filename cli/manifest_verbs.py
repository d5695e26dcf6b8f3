"""`emit` and `launch`: what is done with a manifest."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.errors import Interrupted
from libra_plan.cli.flags import Form
from libra_plan.cli.handover_verbs import RUN_FOLDER, print_hand_over
from libra_plan.cli.program import app
from libra_plan.errors import InputError

_EMIT = (
    "Write a manifest as the files of a launcher.\n\nExample: libra-plan emit torchrun run/ --out scripts/"
)
_LAUNCH = (
    "Show what would be started on this host; start it with --yes.\n\n"
    "Example: libra-plan launch run/ --node node0 --yes\n\n"
    "It waits for the roles, and Ctrl-C stops them. With --detach they outlive it, and `apply`, `status` "
    "and `stop` are for them."
)


@app.command("emit", help=_EMIT)
def _emit(
    launcher: Annotated[str | None, typer.Argument(help="Launcher; --list names them.")] = None,
    manifest: Annotated[Path | None, typer.Argument(help="Manifest file or folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; without it, print.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List launchers and what they can express.")] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Option of the launcher; may be given again."),
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="How to write the list or the files.")] = Form.TABLE,
) -> None:
    from libra_plan.planner.report.run_tables import launchers_text

    if list_:
        known = lp.launchers(launcher)
        if form is Form.TABLE:
            render.print_text(launchers_text(known))
        else:
            render.print_data(render.as_data(known), form.value)
        return
    if launcher is None or manifest is None:
        raise InputError(
            "emit needs a launcher and a manifest",
            allowed=", ".join(lp.launchers()),
            way_out="libra-plan emit torchrun run/",
        )
    emitted = lp.emit(launcher, manifest, out=out, options=_pairs(option or []))
    if out is None and form is not Form.TABLE:
        render.print_data(emitted.files, form.value)
    elif out is None:
        for path, text in emitted.files.items():
            render.print_text(f"# ---- {path}\n{text}")
    else:
        render.note(f"written: {len(emitted.files)} files to {out}")
    if emitted.removed:
        gone = ", ".join(emitted.removed)
        render.note(f"removed: {len(emitted.removed)} files of an earlier emit: {gone}")


def _pairs(options: list[str]) -> dict[str, str]:
    """Split `KEY=VALUE` texts."""
    pairs: dict[str, str] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError("--option takes a key and a value", got=text, allowed="--option KEY=VALUE")
        if key in pairs:
            raise InputError(f"--option {key} is given twice", got=f"{pairs[key]} and {value}")
        pairs[key] = value
    return pairs


@app.command("launch", help=_LAUNCH)
def _launch(
    manifest: Annotated[Path, typer.Argument(help="Manifest file, or the folder `solve --out` wrote.")],
    node: Annotated[str | None, typer.Option(help="Which node of the manifest this host is.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task; may be given again.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really start; without it nothing is started.")] = False,
    folder: Annotated[Path, typer.Option(help="Folder for logs and the record of processes.")] = RUN_FOLDER,
    unknown_gpus: Annotated[
        bool,
        typer.Option("--allow-unknown-gpus", help="Start even if it is not known whether GPUs are free."),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return when all work, and leave them running for apply and status."),
    ] = False,
    form: Annotated[Form, typer.Option("--format", help="How to write the report.")] = Form.TABLE,
) -> None:
    from libra_plan.planner.report.run_tables import dry_run_note, launch_text

    if detach:
        if task:
            raise InputError("--detach starts all tasks of a manifest", got=f"--task {task[0]}")
        settings = lp.HandOverSettings(allow_unknown_gpus=unknown_gpus, notes=render.note)
        print_hand_over(
            lp.apply(manifest, folder=folder, node=node, dry_run=not yes, first=True, settings=settings), form
        )
        return
    report = lp.launch(
        manifest,
        node=node,
        tasks=task,
        dry_run=not yes,
        folder=folder,
        allow_unknown_gpus=unknown_gpus,
        tell=partial(_tell, form=form),
    )
    if form is not Form.TABLE:
        render.print_data(render.as_data(report), form.value)
    elif not yes:
        if report.agents:
            render.print_text(launch_text(report))
        render.note(dry_run_note(report))
    for left in report.survivors if form is Form.TABLE else ():
        render.note(f"still running: {left}")
    if yes and report.stopped_as_asked:
        raise Interrupted(f"by {report.interrupted}; every role ended within its grace")
    if yes:
        report.require_success(folder)


def _tell(one: Any, form: Form) -> None:
    """Print at once what was started and how it ended: a launch may take days."""
    if hasattr(one, "outcome"):
        tell = render.print_line if form is Form.TABLE else render.note
        tell(f"{one.task}/{one.role}: {one.outcome}")
    else:
        render.note(f"started: {one.task}/{one.role} (pid {one.pid}), log {one.log}")
