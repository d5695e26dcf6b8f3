"""`emit` and `launch`: what is done with a manifest."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import Interrupted, writing
from libra_plan.cli.flags import Form
from libra_plan.cli.handover_verbs import start_detached
from libra_plan.cli.inputs import read_manifest_at
from libra_plan.errors import InputError, LaunchError
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.planner.runtime.host import AgentState
    from libra_plan.planner.runtime.launch import AgentExit, LaunchReport

__all__ = ["register"]

ManifestPath = Annotated[Path, typer.Argument(help="Manifest file, or the folder `solve --out` wrote.")]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(help=_EMIT)(emit)
    app.command(help=_LAUNCH)(launch)


_EMIT = (
    "Write a manifest as the files of a launcher.\n\nExample: libra-plan emit torchrun run/ --out scripts/"
)
_LAUNCH = (
    "Show what would be started on this host; start it with --yes.\n\n"
    "Example: libra-plan launch run/ --node node0 --yes\n\n"
    "It waits for the roles, and Ctrl-C stops them. With --detach they outlive it, and `apply`, `status` "
    "and `stop` are for them."
)


def emit(
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
    """Emit, or list emitters."""
    from libra_plan.planner.launchers.base import configured, emitters, find_emitter
    from libra_plan.planner.launchers.check import require_sound

    if list_:
        _list_launchers(launcher, form)
        return
    if launcher is None or manifest is None:
        raise InputError(
            "emit needs a launcher and a manifest",
            allowed=", ".join(emitters()),
            way_out="libra-plan emit torchrun run/",
        )
    emitter = configured(find_emitter(launcher), _pairs(option or []))
    read = read_manifest_at(manifest)
    require_sound(read)
    files = emitter.emit(read)
    if out is None and form is not Form.TABLE:
        render.print_data(files, form.value)
        return
    if out is None:
        for path, text in files.items():
            render.print_text(f"# ---- {path}\n{text}")
        return
    _write(out, files, launcher, read.metadata.digest)


def _list_launchers(launcher: str | None, form: Form) -> None:
    """List one launcher or all: versions they were checked against, abilities, options as they are."""
    from libra_plan.planner.launchers.base import emitters, find_emitter, option_text, options_of

    known = emitters() if launcher is None else {launcher: find_emitter(launcher)}
    if form is not Form.TABLE:
        data = {
            name: {
                "versions": list(emitter.versions),
                "abilities": sorted(each.value for each in emitter.abilities),
                "options": render.as_data(options_of(emitter)),
            }
            for name, emitter in known.items()
        }
        render.print_data(data, form.value)
        return
    for name, emitter in known.items():
        options = ", ".join(f"{key}={option_text(value)}" for key, value in options_of(emitter).items())
        render.print_text(name)
        render.print_text(f"  checked against: {', '.join(emitter.versions)}")
        render.print_text(f"  can express: {', '.join(sorted(each.value for each in emitter.abilities))}")
        render.print_text(f"  options: {options or 'none'}")


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


def _write(out: Path, files: dict[str, str], launcher: str, digest: str) -> None:
    from libra_plan.planner.launchers.emitted import write_emitted

    with writing(out):
        emitted = write_emitted(out, files, launcher=launcher, manifest_digest=digest)
    render.note(f"written: {len(emitted.written)} files to {out}")
    if emitted.removed:
        render.note(f"removed: {len(emitted.removed)} files of an earlier emit: {', '.join(emitted.removed)}")


def launch(
    manifest: ManifestPath,
    node: Annotated[str | None, typer.Option(help="Which node of the manifest this host is.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task; may be given again.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Really start; without it nothing is started.")] = False,
    folder: Annotated[Path, typer.Option(help="Folder for logs and the record of processes.")] = Path(
        "libra-plan-run"
    ),
    unknown_gpus: Annotated[
        bool, typer.Option("--allow-unknown-gpus", help="Start though nobody can say whether GPUs are free.")
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return when all work, and leave them running for apply and status."),
    ] = False,
    form: Annotated[Form, typer.Option("--format", help="How to write the report.")] = Form.TABLE,
) -> None:
    """Launch a manifest's roles on this host, and wait for them."""
    if detach:
        if task:
            raise InputError("--detach starts all tasks of a manifest", got=f"--task {task[0]}")
        start_detached(read_manifest_at(manifest), folder, node, unknown_gpus, yes, form)
        return
    from libra_plan.planner.runtime.gpus import gpus_free
    from libra_plan.planner.runtime.launch import launch as run

    if yes:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
    report = run(
        read_manifest_at(manifest),
        node=node,
        tasks=task,
        dry_run=not yes,
        folder=folder,
        check_gpus=gpus_free,
        allow_unknown_gpus=unknown_gpus,
        tell=partial(_tell, form=form),
    )
    if form is Form.TABLE:
        _print_report(report, started=yes)
    else:
        render.print_data(render.as_data(report), form.value)
    if yes:
        _require_success(report, folder)


def _require_success(report: LaunchReport, folder: Path) -> None:
    """End with the exit code that says how the roles ended."""
    if report.stopped_as_asked:
        raise Interrupted(f"by {report.interrupted}; every role ended within its grace")
    if not report.succeeded:
        failed = [f"{one.task}/{one.role} {one.outcome}" for one in report.exits if one.status != 0]
        raise LaunchError(
            "not every role ended well",
            got=", ".join(failed) or f"{len(report.survivors)} survivors",
            way_out=f"see the logs in {folder / 'logs'}",
        )


def _tell(one: AgentState | AgentExit, form: Form) -> None:
    """Say at once what was started and how it ended: a launch may take days."""
    from libra_plan.planner.runtime.launch import AgentExit

    if isinstance(one, AgentExit):
        tell = render.print_line if form is Form.TABLE else render.note
        tell(f"{one.task}/{one.role}: {one.outcome}")
    else:
        render.note(f"started: {one.task}/{one.role} (pid {one.pid}), log {one.log}")


def _print_report(report: LaunchReport, *, started: bool) -> None:
    import shlex  # only here

    for agent in () if started else report.agents:
        render.print_text(f"{agent.task}/{agent.role} on {agent.node}: {shlex.join(agent.argv)}")
    if not started:
        roles = counted(len(report.agents), "role")
        render.note(f"dry run: nothing was started; --yes starts {roles} on {report.node}")
    for left in report.survivors:
        render.note(f"still running: {left}")
