"""Keep the manifests of a folder: each is written atomically, and earlier ones are kept."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import LockedError, ManifestError, Where
from libra_plan.planner.launchers.check import require_sound_manifest
from libra_plan.planner.launchers.document import manifest_to_json, read_manifest
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import write_atomically

__all__ = [
    "CURRENT",
    "LOCK",
    "Stored",
    "generation_file",
    "lock_folder",
    "manifest_of_run",
    "read_current",
    "write_manifest",
]

CURRENT = "manifest.json"
LOCK = ".lock"


@dataclass(frozen=True)
class Stored:
    """The current manifest of a folder (None: there is none) and notes from reading it."""

    manifest: Manifest | None
    notes: tuple[str, ...] = ()


def generation_file(folder: Path, generation: int) -> Path:
    """Name the file that keeps a generation after the next one was written."""
    return folder / f"manifest-g{generation:06d}.json"


def manifest_of_run(run: Manifest | Path | str) -> Manifest:
    """Return a manifest as it is, or read it from its file, or from the folder that `solve --out` wrote."""
    if isinstance(run, Manifest):
        return run
    path = Path(run)
    return read_manifest(path / CURRENT if path.is_dir() else path)


@contextmanager
def lock_folder(folder: Path, name: str = LOCK) -> Iterator[None]:
    """Hold a folder's lock; the kernel releases it when the process ends, however it ends."""
    path = folder / name
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(
                "another run is using the folder", got=folder, way_out="wait for it, or name another folder"
            ) from None
        yield


def read_current(folder: Path) -> Stored:
    """Read the current manifest of a folder.

    A current file that is no JSON at all (cut off or zeroed by a crash) is moved aside and named in
    the notes, and the newest kept generation takes its place in the answer. One that can be read
    but is of another version, or was changed, stops with a ManifestError and stays where it is.
    """
    if not _is_broken(folder / CURRENT):
        return _read(folder)
    with lock_folder(folder):  # a writer may have replaced it meanwhile
        return _read_or_recover(folder)


def write_manifest(folder: Path, manifest: Manifest) -> Stored:
    """Make a manifest the current one of a folder, if it is sound and its parent is the present one.

    Returns what was current before. Writing the current manifest again changes nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        before = _read_or_recover(folder)
        there = None if before.manifest is None else before.manifest.metadata.digest
        if there == manifest.metadata.digest:
            return before
        if there != manifest.metadata.parent_digest:
            raise ManifestError(
                "the plan is stale: the folder no longer holds the manifest it was made from",
                got=f"parent {manifest.metadata.parent_digest or 'none'}",
                allowed=there or "none",
                way_out="solve again from the current manifest",
                where=Where(shown(folder / CURRENT), key="metadata.parentDigest"),
            )
        require_sound_manifest(manifest, before.manifest)
        if before.manifest is not None:
            kept = generation_file(folder, before.manifest.metadata.generation)
            write_atomically(kept, manifest_to_json(before.manifest).encode())
        write_atomically(folder / CURRENT, manifest_to_json(manifest).encode())
    return before


def _read(folder: Path) -> Stored:
    path = folder / CURRENT
    return Stored(read_manifest(path) if path.exists() else None)


def _read_or_recover(folder: Path) -> Stored:
    path = folder / CURRENT
    if not _is_broken(path):
        return _read(folder)
    aside = next(
        candidate
        for number in range(1, 1_000_000)
        if not (candidate := path.with_name(f"{path.name}.broken-{number}")).exists()
    )
    path.rename(aside)
    kept = _newest_kept(folder)
    used = "no earlier one is kept" if kept is None else f"generation {kept.metadata.generation} is used"
    return Stored(kept, (f"{shown(path)} was broken and is now {aside.name}; {used}",))


def _is_broken(path: Path) -> bool:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    try:
        json.loads(data)
    except ValueError:
        return True
    return False


def _newest_kept(folder: Path) -> Manifest | None:
    for path in sorted(folder.glob("manifest-g*.json"), reverse=True):
        if not _is_broken(path):
            return read_manifest(path)
    return None
