"""`doctor`: what holds the pipeline back, and what to do about it."""

from __future__ import annotations

from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import printable, writing
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.inputs import read_manifest_at
from libra_plan.cli.throughput_verbs import (
    GpusOfLog,
    ReaderOption,
    SamplesOfLog,
    SourceFormat,
    TaskOfLog,
)
from libra_plan.errors import InputError

if TYPE_CHECKING:
    from libra_plan.errors import Where
    from libra_plan.planner.doctor import Diagnosis, Evidence, Finding, Thresholds
    from libra_plan.planner.launchers.manifest import Manifest
    from libra_plan.planner.telemetry.readers import ReaderFacts
    from libra_plan.planner.telemetry.work_windows import LeftOut

__all__ = ["FOUND", "register"]

FOUND = 7
"""The exit code when something was found: no error, but not nothing either."""
_SHOWN = 5
_WALL_CLOCK_S = 1e9  # logs without a wall clock begin at 0

_DOCTOR = (
    "Say what holds the pipeline back: evidence, cause, what to do, and what it can bring at most.\n\n"
    "Reads what `monitor --out` and libra_plan.counter recorded (or, with --reader, a trainer's log), all of "
    "one run at once. With --manifest findings name tasks and roles, and recorded moves are looked at, too. "
    "What the recordings do not tell is said, and never taken for idle.\n\n"
    "Exit code 7 when a finding is at or above --fail-on.\n\n"
    "Example: libra-plan doctor telemetry/ run/telemetry/ --manifest run/ --picture timeline.svg"
)


class FailOn(str, Enum):
    """From which level on a finding makes the exit code."""

    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(help=_DOCTOR)(doctor)


def doctor(
    recordings: Annotated[
        list[Path], typer.Argument(help="Folders or files of samples and counts, all of one run.")
    ],
    manifest: Annotated[
        Path | None, typer.Option(help="Manifest, or folder of the plan that ran: whose the GPUs are.")
    ] = None,
    profiles: Annotated[
        Path | None, typer.Option(help="Profiles folder: estimate gains by solving again, with --manifest.")
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="Cluster file of the plan, for --profiles; default: equal nodes.")
    ] = None,
    reader: ReaderOption = SourceFormat.COUNTER,
    task: TaskOfLog = "",
    gpus: GpusOfLog = None,
    samples: SamplesOfLog = None,
    window: Annotated[
        float, typer.Option(metavar="SECONDS", help="Length of a window of samples.", min=1.0, max=600.0)
    ] = 10.0,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit with 7 when a finding is at least this bad.")
    ] = FailOn.WARNING,
    picture: Annotated[Path | None, typer.Option(help="File to draw the timeline to (SVG).")] = None,
    form: FormOption = Form.TABLE,
) -> None:
    """Read, look, print, and say with the exit code whether something was found."""
    from libra_plan.planner.doctor import Level, Thresholds, diagnose
    from libra_plan.planner.telemetry.readers import ReaderFacts

    plan = _plan(manifest, profiles)
    limits = Thresholds(window_s=window, gap_s=max(60.0, 2 * window))
    left_out: list[str] = []
    evidence = _evidence(recordings, plan, reader, ReaderFacts(task, gpus, samples), limits, left_out)
    diagnosis = diagnose(evidence, limits)
    if profiles is not None and plan is not None:
        from libra_plan.cli.doctor_estimates import estimated

        diagnosis = estimated(diagnosis, profiles, *plan, cluster)
    if picture is not None:
        _draw(picture, evidence, diagnosis, limits)
    if form is Form.TABLE:
        _print(diagnosis)
    else:
        render.print_data(_as_data(diagnosis, left_out), form.value)
    _note_left_out(left_out)
    worst = diagnosis.worst
    if worst is not None and fail_on is not FailOn.NEVER and worst.rank >= Level(fail_on.value).rank:
        raise typer.Exit(FOUND)


def _plan(manifest: Path | None, profiles: Path | None) -> tuple[Manifest, Path] | None:
    """Read the manifest that ran, and name the folder where its moves and corrections lie."""
    if manifest is not None:
        return read_manifest_at(manifest), manifest if manifest.is_dir() else manifest.parent
    if profiles is not None:
        raise InputError("an estimate starts from the plan that runs", got="--profiles without --manifest")
    return None


def _draw(picture: Path, evidence: Evidence, diagnosis: Diagnosis, limits: Thresholds) -> None:
    from libra_plan.planner.report.timeline_picture import timeline_svg

    with writing(picture):
        picture.write_text(timeline_svg(evidence, diagnosis, limits), encoding="utf-8")
    render.note(f"drawn to {printable(picture)}")


def _note_left_out(left_out: list[str]) -> None:
    for line in left_out[:_SHOWN]:
        render.note(f"left out: {line}")
    if len(left_out) > _SHOWN:
        render.note(f"left out: {len(left_out) - _SHOWN} more")


def _evidence(
    paths: list[Path],
    plan: tuple[Manifest, Path] | None,
    reader: SourceFormat,
    facts: ReaderFacts,
    limits: Thresholds,
    left_out: list[str],
) -> Evidence:
    from libra_plan.planner.doctor import gather
    from libra_plan.planner.doctor.fold import SampleFold
    from libra_plan.planner.doctor.moves import moves_in
    from libra_plan.planner.doctor.placement import placement_of
    from libra_plan.planner.doctor.recordings import find
    from libra_plan.planner.doctor.work import WorkFold
    from libra_plan.planner.telemetry.readers import read_work
    from libra_plan.planner.telemetry.recording import Playback

    placement = None if plan is None else placement_of(plan[0])
    moves = None if plan is None else moves_in(plan[1])
    found = find(paths)
    folded, work = SampleFold(limits), WorkFold(limits)
    damaged: list[Where] = []
    for recording in found.samples:
        folded.add_all(Playback(recording, damaged))
    rejected: list[LeftOut] = []
    if found.work:
        work.add_all(read_work(found.work, reader.value, facts, rejected))
    left_out += [f"{where}: not a whole line" for where in damaged]
    left_out += [f"{each.where}: {each.reason}" for each in rejected]
    evidence = gather(folded, work, placement, moves)
    if not (evidence.gpus or evidence.hosts or evidence.roles):
        raise InputError(
            "nothing was recorded there",
            got=", ".join(printable(path) for path in paths),
            allowed="folders that `monitor --out` or libra_plan.counter wrote, or a log with --reader",
            way_out=f"first left out: {left_out[0]}" if left_out else None,
        )
    return evidence


def _print(diagnosis: Diagnosis) -> None:
    if not diagnosis.findings:
        render.print_text("nothing found")
    else:
        rows = [
            [str(number), each.level.value, each.code, each.title, _factor(each)]
            for number, each in enumerate(diagnosis.findings, start=1)
        ]
        render.print_table(["", "level", "code", "what", "gain"], rows, right=(0,))
    for number, each in enumerate(diagnosis.findings, start=1):
        render.print_text(f"\n{number} [{each.code}] {each.title}")
        for name, text in (
            ("when", _when(each)),
            ("seen", each.evidence),
            ("cause", each.cause),
            ("do", each.advice),
            ("gain", each.gain.text),
        ):
            render.print_text(f"  {name.ljust(5)}  {text}")
    if diagnosis.unseen:
        render.print_text("\nnot told, since the recordings lack")
    by_lack: dict[str, list[str]] = {}
    for unseen in diagnosis.unseen:
        for lack in unseen.lacks:
            by_lack.setdefault(lack, []).append(unseen.code)
    for lack, codes in by_lack.items():
        render.print_text(f"  {lack}: {', '.join(codes)}")


def _factor(finding: Finding) -> str:
    gain = finding.gain
    if gain.factor is None:
        return "?"
    return f"{'≤' if gain.kind == 'bound' else '≈'} × {gain.factor:.2f}"


def _when(finding: Finding) -> str:
    from libra_plan.planner.doctor.finders.wording import duration

    length = duration(finding.ended_s - finding.began_s)
    began, ended = _utc(finding.began_s), _utc(finding.ended_s)
    if began is None or ended is None:
        return f"{finding.began_s:.0f} to {finding.ended_s:.0f} s of the log ({length})"
    return f"{began} to {ended} ({length})"


def _utc(at_s: float) -> str | None:
    """Write seconds since 1970; None for those of a log that has no wall clock."""
    if at_s < _WALL_CLOCK_S:
        return None
    return f"{datetime.fromtimestamp(at_s, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _as_data(diagnosis: Diagnosis, left_out: list[str]) -> dict[str, Any]:
    findings = [
        {
            **render.as_data(each),
            "began_utc": _utc(each.began_s),
            "ended_utc": _utc(each.ended_s),
        }
        for each in diagnosis.findings
    ]
    return {
        "worst": None if diagnosis.worst is None else diagnosis.worst.value,
        "findings": findings,
        "unseen": render.as_data(diagnosis.unseen),
        "left_out": left_out,
    }
