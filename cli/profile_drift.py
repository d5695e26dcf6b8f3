"""`profile drift`: which profile is off by how much, and the corrections that follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import writing
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.inputs import read_manifest_at
from libra_plan.cli.throughput_verbs import (
    GpusOfLog,
    ReaderOption,
    Recordings,
    SamplesOfLog,
    SourceFormat,
    TaskOfLog,
)
from libra_plan.errors import InputError, WorkloadError

if TYPE_CHECKING:
    from libra_plan.models.corrections import CorrectionsFile
    from libra_plan.models.fit import FittedProfile
    from libra_plan.planner.launchers.manifest import Manifest
    from libra_plan.planner.telemetry.drift import PlannedStage, RoleDrift
    from libra_plan.planner.telemetry.work_windows import LeftOut
    from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder
    from libra_plan.profiles.schema import WorkloadFile

__all__ = ["register"]

_DRIFT = (
    "Compare observed times with the profiles they were predicted from, and say which is off by how much.\n\n"
    "Windows that state batch and length are compared with the role's profile; those of trainers' logs with "
    "the plan's stage times (--run). --out writes the factors for `solve --corrections`; with --from they "
    "are gone on from.\n\n"
    "Example: libra-plan profile drift profiles/ run/telemetry --out run/corrections.json"
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(help=_DRIFT)(drift)


def drift(
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
    """Compare, write when asked, and print."""
    from libra_plan.models.corrections import read_corrections
    from libra_plan.planner.telemetry.drift import drifts
    from libra_plan.planner.telemetry.readers import ReaderFacts, read_work

    folder, workload = _read_folder(profiles)
    known, digest = (None, None) if before is None else read_corrections(before)
    planned = None if run is None else _planned(read_manifest_at(run), known, digest)
    rejected: list[LeftOut] = []
    windows = read_work(recordings, reader.value, ReaderFacts(task, gpus, samples), rejected)
    found = list(
        drifts(
            workload.tasks,
            folder.profiles,
            _fit,
            windows,
            before=known,
            stage_times=planned,
            gpu_class=gpu_class,
        )
    )
    if not found:
        raise InputError(
            "no window is of a role of the workload",
            allowed=", ".join(f"{t.id}/{r.id}" for t in workload.tasks for r in t.roles),
            way_out="the counter's task and role are those of workload.yaml; a log's task is --task",
        )
    if out is not None:
        _write(out, found, known)
    if form is Form.TABLE:
        _print(found)
    else:
        render.print_data([_as_data(each) for each in found], form.value)
    for each in rejected[:5]:
        render.note(f"left out: {each.where}: {each.reason}")


def _read_folder(profiles: Path) -> tuple[ProfilesFolder, WorkloadFile]:
    from libra_plan.profiles.catalog import find_folder, load_folder

    folder = load_folder(find_folder(profiles))
    if folder.workload is None:
        raise WorkloadError(
            "the folder has no workload.yaml",
            got=profiles,
            way_out="name the folder whose workload.yaml says which profile a role has",
        )
    return folder, folder.workload


def _fit(profile: LoadedProfile) -> FittedProfile:
    from libra_plan.models.fits import cached_fit

    return cached_fit(profile)


def _planned(
    manifest: Manifest, known: CorrectionsFile | None, digest: str | None
) -> dict[tuple[str, str], PlannedStage]:
    """Give the plan's stage times without the corrections it was made with."""
    from libra_plan.models.corrections import CORRECTIONS
    from libra_plan.models.parallelism import Layout
    from libra_plan.models.quantities import Estimate, Origin
    from libra_plan.planner.telemetry.drift import PlannedStage

    used = manifest.spec.inputs.digests.get(CORRECTIONS)
    if used is not None and used != digest:
        raise InputError(
            "the plan was made with corrections, and they are not those of --from",
            got="no --from" if digest is None else f"sha256 {digest[:12]}…",
            allowed=f"the file with sha256 {used[:12]}…",
            way_out="name the file that solve was given",
        )
    stages = {}
    for task in manifest.spec.tasks:
        for role in task.roles:
            if role.stage_time is None or role.stage_time.origin is None or role.layout is None:
                continue
            layout = Layout(role.layout.tp, role.layout.pp, role.layout.cp, role.layout.ep)
            correction = None if known is None or used is None else known.by_role.get((task.id, role.id))
            factor = 1.0 if correction is None else correction.state.factor
            value = role.stage_time.value / factor
            time_s = Estimate(value, value, value, "s", Origin(role.stage_time.origin))
            stages[task.id, role.id] = PlannedStage(time_s, layout, task.generation)
    return stages


def _write(out: Path, found: list[RoleDrift], known: CorrectionsFile | None) -> None:
    """Write the corrections found, and those of roles that were not recorded this time."""
    import msgspec

    from libra_plan.models.corrections import CorrectionsFile
    from libra_plan.profiles.durable import write_atomically

    kept = {} if known is None else dict(known.by_role)
    kept |= {(each.correction.task, each.correction.role): each.correction for each in found if each.taken}
    file = CorrectionsFile(1, tuple(kept[key] for key in sorted(kept)))
    with writing(out):
        write_atomically(out, msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")
    render.note(f"written: {out}")


def _as_data(found: RoleDrift) -> dict[str, Any]:
    own = found.correction
    low, high = own.state.bounds
    return {
        "task": own.task,
        "role": own.role,
        "basis": own.basis,
        "profile": own.profile,
        "layout": str(own.layout),
        "factor": own.state.factor if own.state.known else None,
        "low": low if own.state.known else None,
        "high": high if own.state.known else None,
        "windows": own.state.observations,
        "newly_taken": found.taken,
        "changes": own.state.changes,
        "left_out": dict(found.left_out),
    }


def _print(found: list[RoleDrift]) -> None:
    from libra_plan.models.corrections import LEAST_WINDOWS

    rows = []
    for each in map(_as_data, found):
        off = "?" if each["factor"] is None else f"{each['factor'] - 1:+.1%}"
        bounds = "" if each["factor"] is None else f"{each['low'] - 1:+.1%} – {each['high'] - 1:+.1%}"
        reasons = [f"{count} × {reason}" for reason, count in each["left_out"].items()]
        if each["factor"] is None:
            reasons.insert(0, f"a factor takes {LEAST_WINDOWS} windows")
        why = "; ".join(reasons)
        against = each["profile"] or ("the plan" if each["windows"] else "")
        counts = [str(each["windows"]), str(each["changes"])]
        rows.append([each["task"], each["role"], against, each["layout"], off, bounds, *counts, why])
    columns = ["task", "role", "compared with", "layout", "takes", "bounds", "windows", "changes", "left out"]
    render.print_table(columns, rows, right=(4, 6, 7))
