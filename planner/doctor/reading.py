"""Read the evidence of a diagnosis: samples, counts of work, the plan that ran, and its moves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from libra_plan.errors import InputError, ProfileError, Where
from libra_plan.planner.controller.store_schema import DATABASE
from libra_plan.planner.doctor.evidence import Evidence, gather, placement_of
from libra_plan.planner.doctor.fold import SampleFold
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import MovedTask
from libra_plan.planner.doctor.work import WorkFold
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.telemetry.readers import ReaderFacts, read_work
from libra_plan.planner.telemetry.recording import RecordingReader, parts
from libra_plan.planner.telemetry.work_windows import SkippedRecord
from libra_plan.profiles.document import shown
from libra_plan.profiles.switch_costs import STORE, read_switch_costs

__all__ = ["find_by_kind", "moves_in", "read_evidence"]

_PART = "telemetry-"
_ACTIONS = {"grow": "resize", "shrink": "resize", "shift": "resize"}


def read_evidence(
    paths: Sequence[Path],
    manifest: Manifest | None,
    folder: Path | None,
    reader: str,
    facts: ReaderFacts,
    limits: Thresholds,
    left_out: list[str],
) -> Evidence:
    """Read all recordings of one run; `folder` is where the moves of the plan's tasks lie."""
    sampled, counted = find_by_kind(paths)
    samples, work = SampleFold(limits), WorkFold(limits)
    damaged, skipped = list[Where](), list[SkippedRecord]()
    for recording in sampled:
        samples.add_all(RecordingReader(recording, damaged))
    if counted:
        work.add_all(read_work(counted, reader, facts, skipped))
    left_out += [f"{where}: not a whole line" for where in damaged]
    left_out += [f"{each.where}: {each.reason}" for each in skipped]
    placement = None if manifest is None else placement_of(manifest)
    evidence = gather(samples, work, placement, None if folder is None else moves_in(folder))
    if not (evidence.gpus or evidence.hosts or evidence.roles):
        raise InputError(
            "nothing was recorded there",
            got=", ".join(shown(path) for path in paths),
            allowed="folders that `monitor --out` or libra_plan.counter wrote, or a log with --reader",
            way_out=f"first left out: {left_out[0]}" if left_out else None,
        )
    return evidence


def find_by_kind(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Separate recordings of samples (telemetry-*.jsonl and .gz) from everything else.

    Folders are searched through. Samples are folders or single parts.
    """
    samples: list[Path] = []
    work: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InputError("no such recording", way_out="check the path", where=Where(shown(path)))
        if path.is_dir():
            folders = {path, *(each.parent for each in path.rglob(f"{_PART}*.jsonl*"))}
            samples += [folder for folder in sorted(folders) if parts(folder)]
            work += sorted(each for each in path.rglob("work-*.jsonl") if each.is_file())
        elif path.name.startswith(_PART):
            samples.append(path)
        else:
            work.append(path)
    return list(dict.fromkeys(samples)), list(dict.fromkeys(work))


def moves_in(folder: Path) -> list[MovedTask] | None:
    """Read the moves recorded in the folder of a run; None when nobody records any there.

    What a supervisor measured comes before what the loop decided, which does not say what was lost.
    """
    if (folder / STORE).is_file():
        return _measured(folder / STORE)
    if (folder / DATABASE).is_file():
        return _decided(folder / DATABASE)
    return None


def _decided(path: Path) -> list[MovedTask]:
    """Return the moves of every look whose plan was written."""
    from libra_plan.planner.controller.store import StateStore

    store = StateStore.open(path, create=False)
    try:
        return [
            MovedTask(
                move.task,
                row.wall_s,
                _ACTIONS.get(move.action, move.action),
                move.gpus_before,
                move.gpus_after,
                None,
            )
            for row in store.looks()
            if row.adopted
            for move in store.decision(row.id).moves
        ]
    finally:
        store.close()


def _measured(path: Path) -> list[MovedTask]:
    found = []
    for number, record in enumerate(read_switch_costs(path), start=1):
        try:
            at = datetime.fromisoformat(record.at.replace("Z", "+00:00"))  # Python 3.10 knows no Z
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise ProfileError(
                "the record of a move has no time",
                got=record.at,
                allowed="ISO 8601 with its zone",
                where=Where(shown(path), line=number, key="at"),
            )
        found.append(
            MovedTask(
                record.task,
                at.timestamp(),
                record.action,
                record.gpus_before,
                record.gpus_after,
                record.lost_s,
            )
        )
    return found
