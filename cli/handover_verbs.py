"""`apply`, `status` and `stop`: move what runs on this host to another manifest, and look at it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import writing
from libra_plan.cli.flags import Form
from libra_plan.cli.inputs import read_manifest_at
from libra_plan.errors import InputError, LaunchError, ProfileError, few
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.planner.launchers.manifest import Manifest
    from libra_plan.planner.runtime.apply import HandOverReport, Settings
    from libra_plan.planner.runtime.forecast import StepForecast
    from libra_plan.planner.runtime.status import StatusReport

__all__ = ["register", "start_detached"]

RUN_FOLDER = Path("libra-plan-run")
Folder = Annotated[Path, typer.Option(help="Folder of the run: journal, logs and what runs.")]
Node = Annotated[str | None, typer.Option(help="Which node of the manifest this host is.")]
Yes = Annotated[bool, typer.Option("--yes", help="Really do it; without it the steps are shown.")]
Force = Annotated[
    bool,
    typer.Option("--force", help="Stop without a checkpoint, and kill what outlives its grace: loses work."),
]
UnknownGpus = Annotated[
    bool, typer.Option("--allow-unknown-gpus", help="Go on though nobody can say whether GPUs are free.")
]
CheckpointWait = Annotated[
    float | None,
    typer.Option("--checkpoint-wait", help="Seconds a task has to save; default: its grace.", min=0.1),
]
StartWindow = Annotated[
    float,
    typer.Option("--start-window", help="Seconds a role that reports nothing must live to count.", min=0.0),
]
Profiles = Annotated[
    Path | None, typer.Option("--profiles", help="Profiles folder that the measured costs are added to, too.")
]
FormOption = Annotated[Form, typer.Option("--format", help="How to write the report.")]

_APPLY = (
    "Show the steps from what runs on this host to a manifest; take them with --yes.\n\n"
    "Example: libra-plan apply run/ --yes\n\n"
    "Each task is asked for a checkpoint and stopped when it is complete; a task grows only when the one "
    "that shrinks for it is proven gone. When a step fails, the old manifest runs again. Without a manifest "
    "an unfinished hand-over goes on; --back calls it off."
)
_STATUS = (
    "Compare what runs on this host with what was planned, and name each difference.\n\n"
    "Example: libra-plan status --format json\n\n"
    "Exit code 6 when there is a difference."
)
_STOP = "Save and stop everything that runs here.\n\nExample: libra-plan stop --yes"


_ENDED = "{} ended by itself, and no step starts it again"
_AGAIN = (
    "see its log; `libra-plan stop --yes`, then `libra-plan launch MANIFEST --detach --yes` start all again"
)


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(help=_APPLY)(apply)
    app.command(help=_STATUS)(status)
    app.command(help=_STOP)(stop)


def apply(
    manifest: Annotated[Path | None, typer.Argument(help="Manifest file, or the folder of it.")] = None,
    back: Annotated[bool, typer.Option("--back", help="Call an unfinished hand-over off.")] = False,
    yes: Yes = False,
    force: Force = False,
    folder: Folder = RUN_FOLDER,
    node: Node = None,
    unknown_gpus: UnknownGpus = False,
    checkpoint_wait: CheckpointWait = None,
    start_window: StartWindow = 30.0,
    profiles: Profiles = None,
    form: FormOption = Form.TABLE,
) -> None:
    """Move to a manifest, or go on with an unfinished hand-over."""
    from libra_plan.planner.runtime.apply import apply as run
    from libra_plan.planner.runtime.apply import resume

    if manifest is not None and back:
        raise InputError("--back goes to what ran before and takes no manifest", got=manifest)
    settings = _settings(force, unknown_gpus, checkpoint_wait, start_window, profiles)
    target = None if manifest is None else read_manifest_at(manifest)
    with writing(folder):
        report = (
            resume(folder=folder, back=back, dry_run=not yes, settings=settings)
            if target is None
            else run(target, folder=folder, node=node, dry_run=not yes, settings=settings)
        )
    _report(report, target, folder, profiles, form)


def start_detached(
    manifest: Manifest, folder: Path, node: str | None, unknown_gpus: bool, yes: bool, form: Form
) -> None:
    """Start a manifest's roles so that they outlive this command."""
    from libra_plan.planner.runtime.apply import apply as run

    settings = _settings(False, unknown_gpus, None, 30.0, None)
    with writing(folder):
        report = run(manifest, folder=folder, node=node, dry_run=not yes, first=True, settings=settings)
    _report(report, manifest, folder, None, form)


def stop(
    yes: Yes = False,
    force: Force = False,
    folder: Folder = RUN_FOLDER,
    checkpoint_wait: CheckpointWait = None,
    form: FormOption = Form.TABLE,
) -> None:
    """Save and stop."""
    from libra_plan.planner.runtime.apply import stop as run

    settings = _settings(force, True, checkpoint_wait, 30.0, None)
    with writing(folder):
        report = run(folder=folder, dry_run=not yes, settings=settings)
    _report(report, None, folder, None, form)


def _settings(
    force: bool,
    unknown_gpus: bool,
    checkpoint_wait: float | None,
    start_window: float,
    profiles: Path | None,
) -> Settings:
    from libra_plan.planner.runtime.apply import Settings
    from libra_plan.planner.runtime.goal import Deadlines
    from libra_plan.planner.runtime.gpus import gpus_free
    from libra_plan.profiles.switch_costs import STORE

    return Settings(
        force=force,
        check_gpus=gpus_free,
        allow_unknown_gpus=unknown_gpus,
        deadlines=Deadlines(checkpoint_s=checkpoint_wait, window_s=start_window),
        stores=() if profiles is None else (profiles / STORE,),
        tell=render.note,
    )


def _report(
    report: HandOverReport, target: Manifest | None, folder: Path, profiles: Path | None, form: Form
) -> None:
    forecast = _forecast(report, target, folder, profiles)
    if form is not Form.TABLE:
        render.print_data({**render.as_data(report), "forecast": render.as_data(forecast)}, form.value)
    else:
        _print_steps(forecast)
        for line in _costs(report):
            render.print_text(line)
    if report.outcome is None:
        moves = any(step.action != "keep" for step in report.steps)
        render.note(f"dry run: nothing was touched{'; --yes takes these steps' if moves else ''}")
        if report.ended:
            render.note(f"warning: {_ENDED.format(few(report.ended))}; {_AGAIN}")
    elif report.outcome == "new" and not report.ended:
        render.note(f"done: {report.running or 'nothing'} runs on {report.node or 'this host'}")
    elif report.outcome == "new":
        raise LaunchError(_ENDED.format(few(report.ended)), way_out=_AGAIN)
    else:
        raise LaunchError(_ending(report), got=report.reason or None, way_out=_way_out(report))


def _ending(report: HandOverReport) -> str:
    if report.outcome == "old" and report.running is None:
        return "not every role could be started, so nothing runs"
    said = {
        "old": "the hand-over was called off, and what ran before runs again",
        "stuck": "the hand-over failed, and so did the way back: what runs is neither plan",
        "left": "the hand-over was left unfinished",
    }
    return said[report.outcome or "left"]


def _way_out(report: HandOverReport) -> str:
    if report.outcome == "old" and report.running is None:
        return "mend what is named, then start again"
    if report.outcome == "old":
        return "see the logs of what failed, then apply a new plan"
    if report.outcome == "stuck":
        return "see `libra-plan status`, clear what is named, then `libra-plan apply --yes`"
    return "`libra-plan apply --yes` finishes it, `libra-plan apply --back --yes` calls it off"


def _forecast(
    report: HandOverReport, target: Manifest | None, folder: Path, profiles: Path | None
) -> tuple[StepForecast, ...]:
    """Price the steps from what was recorded here and in the profiles, else from the given figures."""
    from libra_plan.planner.runtime.forecast import forecasts
    from libra_plan.profiles.catalog import load_switching, shipped_folder
    from libra_plan.profiles.switch_costs import STORE, read_switch_costs, switch_prices

    stores = [store / STORE for store in (folder, profiles) if store is not None]
    records = []
    for store in stores[::-1]:
        try:
            records += read_switch_costs(store) if store.exists() else []
        except ProfileError as problem:  # the moves are what counts here, whatever is known of their price
            render.note(f"warning: {problem.message}")
    given = [load_switching(path)[0] for path in sorted(shipped_folder().glob("*/switching.yaml"))]
    starts = {each.gpu_class: each.start_s.p90 for each in given}
    return forecasts(report.steps, target, switch_prices(records), starts)


def _print_steps(forecast: tuple[StepForecast, ...]) -> None:
    rows = [
        (
            one.step,
            f"{one.gpus_before} → {one.gpus_after}",
            ", ".join(one.after) or "–",
            "not known"
            if one.seconds is None
            else f"{'≥ ' if one.origin == 'assumed' else ''}{one.seconds:.3g}",
            one.origin or "",
        )
        for one in forecast
    ]
    if rows:
        render.print_table(("step", "GPUs", "after", "lost s", "origin"), rows, right=(3,))
    else:
        render.print_text("nothing to do")


def _costs(report: HandOverReport) -> list[str]:
    """Say what each move took, part by part; of its roles the slowest counts."""
    lines = []
    for one in report.costs:
        known = {part: getattr(one, f"{part}_s") for part in ("drain", "save", "stop")}
        for part in ("start", "load", "warm_up"):
            seconds = [getattr(role, f"{part}_s") for role in one.roles]
            known[part] = max((each for each in seconds if each is not None), default=None)
        known["lost"] = one.lost_s
        parts = [
            f"{part.replace('_', '-')} {value:.3g} s" for part, value in known.items() if value is not None
        ]
        lines.append(f"{one.action}:{one.task} took: {', '.join(parts) or 'not known'}")
    return lines


def status(folder: Folder = RUN_FOLDER, form: FormOption = Form.TABLE) -> None:
    """Look, and name differences."""
    from libra_plan.planner.runtime.status import status as look

    report = look(folder)
    if form is Form.TABLE:
        _print_status(report)
    else:
        render.print_data(render.as_data(report), form.value)
    if report.differences:
        raise LaunchError(
            "what runs is not what was planned",
            got=f"{counted(len(report.differences), 'difference')}, named above",
            way_out=_remedy({one.kind for one in report.differences}),
        )


def _remedy(kinds: set[str]) -> str:
    """Say what helps: `apply` starts no role that has ended, nor does it stop what is not its own."""
    if "unfinished" in kinds:
        return "`libra-plan apply --yes` goes on, `libra-plan apply --back --yes` calls it off"
    if kinds & {"missing-role", "missing-rank"}:
        return _AGAIN
    if "wrong-generation" in kinds:
        return "`libra-plan apply MANIFEST --yes` moves to a plan"
    return "stop the processes named above, unless you want them there"


def _print_status(report: StatusReport) -> None:
    if report.foreground is not None:
        render.print_text(f"a foreground launch is at work (pid {report.foreground}); Ctrl-C there stops it")
    elif report.generation is None and report.stopped_at is not None:
        render.print_text(f"nothing runs: stopped at {report.stopped_at}")
    elif report.generation is None:
        render.print_text("nothing was started here")
    else:
        rows = [
            (
                f"{one.task}/{one.role}",
                str(one.generation),
                " ".join(one.gpus) or "CPU",
                "–" if one.pid is None else str(one.pid),
            )
            for one in report.roles
        ]
        render.print_table(("role", "generation", "GPUs", "pid"), rows, right=(1, 3))
    for one in report.differences:
        render.print_text(str(one))
    for line in report.notes:
        render.note(line)
