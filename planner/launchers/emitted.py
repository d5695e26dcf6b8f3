"""Write a launcher's files over those of an earlier emit: what it wrote goes, what others wrote stays.

An index beside the files says which of them an emit wrote, and with what content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libra_plan.errors import ManifestError, Where, few
from libra_plan.planner.launchers.store import write_files
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import write_atomically

__all__ = ["INDEX", "Emitted", "write_emitted"]

INDEX = ".libra-plan-emitted.json"


class Index(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What an emit wrote: the launcher, the manifest's digest, and the SHA-256 of each file by its path."""

    launcher: str
    manifest_digest: str
    files: dict[str, str]


@dataclass(frozen=True)
class Emitted:
    """The files that were written, and those of an earlier emit that were removed."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


def write_emitted(folder: Path, files: Mapping[str, str], *, launcher: str, manifest_digest: str) -> Emitted:
    """Write a launcher's files; remove what an earlier emit wrote here and this one does not.

    Refused before anything is written when a file that would be replaced or removed is not as an
    emit left it. The index comes last: after a crash the same emit can be run again.
    """
    before = _read_index(folder)
    _refuse_changed(folder, files, before)
    write_files(folder, files)
    stale = tuple(name for name in before if name not in files and (folder / name).exists())
    for name in stale:
        (folder / name).unlink()
        _remove_empty(folder, (folder / name).parent)
    index = Index(
        launcher=launcher,
        manifest_digest=manifest_digest,
        files={name: _digest(text.encode()) for name, text in sorted(files.items())},
    )
    text = json.dumps(msgspec.to_builtins(index), indent=2, ensure_ascii=False)
    write_atomically(folder / INDEX, text.encode() + b"\n")
    return Emitted(tuple(files), stale)


def _read_index(folder: Path) -> dict[str, str]:
    """Give the digests of what an earlier emit wrote; nothing where there is no index."""
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        files = msgspec.json.decode(path.read_bytes(), type=Index).files
        outside = [name for name in files if not _is_inside(folder, name)]
        if outside:
            raise msgspec.ValidationError(f"{outside[0]} lies outside the folder")
    except msgspec.MsgspecError as problem:
        raise ManifestError(
            "it cannot be read what an earlier emit wrote here",
            got=problem,
            way_out="emit to another folder, or move this one away",
            where=Where(shown(path)),
        ) from None
    return files


def _is_inside(folder: Path, name: str) -> bool:
    return (folder / name).parent.resolve().is_relative_to(folder.resolve())


def _refuse_changed(folder: Path, files: Mapping[str, str], before: Mapping[str, str]) -> None:
    changed = list(_changed(folder, files, before))
    if changed:
        raise ManifestError(
            "files in the folder are not as an emit left them, and would be lost",
            got=few(changed, most=5),
            allowed="files that emit wrote and nobody changed; others only under other names",
            way_out="move them away, or emit to another folder",
            where=Where(shown(folder)),
        )


def _changed(folder: Path, files: Mapping[str, str], before: Mapping[str, str]) -> Iterator[str]:
    """List files that hold neither what an emit wrote nor what this one will write."""
    for name in sorted({*files, *before}):
        path = folder / name
        if not path.exists() and not path.is_symlink():
            continue
        allowed = {before.get(name)} | ({_digest(files[name].encode())} if name in files else set())
        if path.is_symlink() or not path.is_file() or _digest(path.read_bytes()) not in allowed:
            yield name


def _remove_empty(folder: Path, inner: Path) -> None:
    """Remove folders that hold nothing any more, up to the folder itself."""
    with suppress(OSError):  # not empty
        while inner != folder:
            inner.rmdir()
            inner = inner.parent


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
