"""Compare recordings with predictions, and correct the profiles by the differences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libra_plan.errors import InputError, WorkloadError, writing
from libra_plan.models.corrections import CORRECTIONS, CorrectionsFile, read_corrections
from libra_plan.models.fits import cached_fit
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.planner.launchers.document import read_manifest
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.store import CURRENT
from libra_plan.planner.telemetry.drift import PlannedStage, RoleDrift, drifts
from libra_plan.planner.telemetry.readers import ReaderFacts, paths_of, read_work
from libra_plan.planner.telemetry.work_windows import SkippedRecord
from libra_plan.profiles.catalog import find_folder, load_folder
from libra_plan.profiles.durable import write_atomically

__all__ = ["ProfileDrift", "drift"]


@dataclass(frozen=True)
class ProfileDrift:
    """The correction of each role that was recorded, and the records that were left out."""

    roles: tuple[RoleDrift, ...]
    left_out: tuple[SkippedRecord, ...]


def drift(
    profiles: str | Path,
    recordings: str | Path | Iterable[str | Path],
    *,
    reader: str = "counter",
    task: str = "",
    gpus: int | None = None,
    samples: int | None = None,
    run: str | Path | None = None,
    gpu_class: str | None = None,
    before: str | Path | None = None,
    out: str | Path | None = None,
) -> ProfileDrift:
    """Compare observed times with the profiles they were predicted from.

    Parameters
    ----------
    profiles
        Profiles folder with a workload.
    recordings
        A file, or a folder that counters write to, or several of them.
    reader
        Whose metrics they hold: counter, verl, nemo-rl, slime or vllm.
    task, gpus, samples
        The task, GPUs of the run and samples of a step, for logs that do not say.
    run
        The manifest of the plan that ran, or its folder: logs without batch and length are compared
        with its stage times.
    gpu_class
        The GPU class, when a role has profiles of several.
    before
        Corrections to go on from; those the plan was made with, if it had any.
    out
        File that takes the corrections, for `solve --corrections`.

    Returns
    -------
    ProfileDrift
        The correction of each role, the windows it rests on, and what was left out.

    Raises
    ------
    InputError
        If a file is missing or wrong, or no window is of a role of the workload.

    Examples
    --------
    >>> import libra_plan as lp
    >>> counter = lp.counter("work", task="agent-7b", role="actor")
    >>> counter.add(samples=128, steps=1)
    >>> counter.close()
    >>> lp.drift("profiles", "work").left_out
    ()
    """
    folder = load_folder(find_folder(profiles))
    if folder.workload is None:
        raise WorkloadError(
            "the folder has no workload.yaml",
            got=profiles,
            way_out="name the folder whose workload.yaml says which profile a role has",
        )
    known, digest = (None, None) if before is None else read_corrections(Path(before))
    planned = None
    if run is not None:
        run = Path(run)
        planned = _planned(read_manifest(run / CURRENT if run.is_dir() else run), known, digest)
    left_out: list[SkippedRecord] = []
    facts = ReaderFacts(task, gpus, samples)
    windows = read_work(paths_of(recordings), reader, facts, left_out)
    tasks = folder.workload.tasks
    found = tuple(
        drifts(
            tasks,
            folder.profiles,
            cached_fit,
            windows,
            before=known,
            stage_times=planned,
            gpu_class=gpu_class,
        )
    )
    if not found:
        raise InputError(
            "no window is of a role of the workload",
            allowed=", ".join(f"{each.id}/{role.id}" for each in tasks for role in each.roles),
            way_out="the counter's task and role are those of workload.yaml; a log takes task (--task)",
        )
    if out is not None:
        _write(Path(out), found, known)
    return ProfileDrift(found, tuple(left_out))


def _planned(
    manifest: Manifest, known: CorrectionsFile | None, digest: str | None
) -> dict[tuple[str, str], PlannedStage]:
    """Return the plan's stage times without the corrections it was made with."""
    used = manifest.spec.inputs.digests.get(CORRECTIONS)
    if used is not None and used != digest:
        raise InputError(
            "the plan was made with corrections, and they are not those of before (--from)",
            got="no before (--from)" if digest is None else f"sha256 {digest[:12]}…",
            allowed=f"the file with sha256 {used[:12]}…",
            way_out="name the file that solve was given",
        )
    stages = {}
    for task in manifest.spec.tasks:
        for role in task.roles:
            if role.stage_time is None or role.stage_time.origin is None or role.layout is None:
                continue
            layout = Layout.of(role.layout)
            correction = None if known is None or used is None else known.by_role.get((task.id, role.id))
            factor = 1.0 if correction is None else correction.state.factor
            value = role.stage_time.value / factor
            time_s = Estimate(value, value, value, "s", Origin(role.stage_time.origin))
            stages[task.id, role.id] = PlannedStage(time_s, layout, task.generation)
    return stages


def _write(out: Path, found: Iterable[RoleDrift], known: CorrectionsFile | None) -> None:
    """Write the corrections found, and those of roles that were not recorded this time."""
    kept = {} if known is None else dict(known.by_role)
    kept |= {(each.correction.task, each.correction.role): each.correction for each in found if each.taken}
    file = CorrectionsFile(1, tuple(kept[key] for key in sorted(kept)))
    with writing(out):
        write_atomically(out, msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")
