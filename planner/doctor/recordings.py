"""Find what was recorded under the paths a user names: samples of GPUs and hosts, and counts of work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import InputError, Where
from libra_plan.planner.telemetry.recording import parts
from libra_plan.profiles.document import shown

__all__ = ["Found", "find"]

_PART = "telemetry-"


@dataclass(frozen=True, slots=True)
class Found:
    """Recordings of samples (folders or single parts), and the paths where counts or logs lie."""

    samples: tuple[Path, ...]
    work: tuple[Path, ...]


def find(paths: Iterable[Path]) -> Found:
    """Tell samples (telemetry-*.jsonl and .gz) from everything else; folders are searched through."""
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
    return Found(tuple(dict.fromkeys(samples)), tuple(dict.fromkeys(work)))
