"""Emit a manifest as a launcher's files, replacing those of an earlier emit; files of others stay.

An index beside the files lists which of them an emit wrote, and with what content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libra_plan.errors import ManifestError, Where, few, writing
from libra_plan.planner.launchers.base import configured, emitters, find_emitter
from libra_plan.planner.launchers.check import require_sound_manifest
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.store import manifest_of_run
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import write_atomically

__all__ = ["INDEX", "Emitted", "LauncherEntry", "emit", "launchers", "write_emitted"]

INDEX = ".libra-plan-emitted.json"


class Index(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Record of an emit: the launcher, the manifest's digest, and the SHA-256 of each file by its path."""

    launcher: str
    manifest_digest: str
    files: dict[str, str]


@dataclass(frozen=True)
class Emitted:
    """The files of a launcher by path; those of an earlier emit that were `removed` from the folder."""

    files: Mapping[str, str]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class LauncherEntry:
    """A launcher: versions it was checked against, what it can express, and its options as they are."""

    versions: tuple[str, ...]
    abilities: tuple[str, ...]
    options: Mapping[str, object]


def launchers(name: str | None = None) -> dict[str, LauncherEntry]:
    """List launchers with what they can express.

    Parameters
    ----------
    name
        Only this launcher; all unless given.

    Returns
    -------
    dict of LauncherEntry
        Versions, abilities and options of each launcher, by name.

    Raises
    ------
    ManifestError
        If there is no launcher of this name.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.launchers("verl")["verl"].versions
    ('0.9.1',)
    """
    known = emitters() if name is None else {name: find_emitter(name)}
    return {
        launcher: LauncherEntry(
            emitter.versions,
            tuple(sorted(each.value for each in emitter.abilities)),
            msgspec.structs.asdict(emitter.options),
        )
        for launcher, emitter in known.items()
    }


def emit(
    launcher: str,
    run: Manifest | Path | str,
    *,
    out: Path | str | None = None,
    options: Mapping[str, str] | None = None,
) -> Emitted:
    """Write a manifest as the files of a launcher.

    Parameters
    ----------
    launcher
        Name of the launcher; `launchers()` lists them.
    run
        A manifest, its file, or the folder that `solve` wrote.
    out
        Folder to write the files to; without it they are only returned.
    options
        Options of the launcher as texts, as `--option KEY=VALUE` takes them.

    Returns
    -------
    Emitted
        The files by path, and those of an earlier emit to `out` that were removed.

    Raises
    ------
    ManifestError
        If the launcher or an option is unknown, the manifest is not sound, or a file in `out` was changed.
    InputError
        If `out` cannot be written to.
    LauncherRefusal
        If the launcher cannot express the manifest; it lists every cause.

    Examples
    --------
    >>> import libra_plan as lp
    >>> manifest = lp.solve("profiles/", gpus=8).save("run/")
    >>> sorted(lp.emit("torchrun", "run/", out="scripts/").files)[0]
    'README.md'
    """
    emitter = configured(find_emitter(launcher), options or {})
    manifest = manifest_of_run(run)
    require_sound_manifest(manifest)
    files = emitter.emit(manifest)
    if out is None:
        return Emitted(files)
    folder = Path(out)
    with writing(folder):
        return write_emitted(folder, files, launcher=launcher, manifest_digest=manifest.metadata.digest)


def write_emitted(folder: Path, files: Mapping[str, str], *, launcher: str, manifest_digest: str) -> Emitted:
    """Write a launcher's files; remove what an earlier emit wrote here and this one does not.

    Refused before anything is written when a file that would be replaced or removed is not as an
    emit left it. The index comes last: after a crash the same emit can be run again.
    """
    before = _read_index(folder)
    digests = {name: _digest(text.encode()) for name, text in files.items()}
    _refuse_changed(folder, digests, before)
    for name, text in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise RuntimeError(f"an emitter wants to write outside its folder: {name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
        if path.suffix == ".sh":
            path.chmod(0o755)
    stale = tuple(name for name in before if name not in files and (folder / name).exists())
    for name in stale:
        (folder / name).unlink()
        _remove_empty(folder, (folder / name).parent)
    index = Index(launcher=launcher, manifest_digest=manifest_digest, files=dict(sorted(digests.items())))
    text = json.dumps(msgspec.to_builtins(index), indent=2, ensure_ascii=False)
    write_atomically(folder / INDEX, text.encode() + b"\n")
    return Emitted(files, stale)


def _read_index(folder: Path) -> dict[str, str]:
    """Return the digests of what an earlier emit wrote; nothing where there is no index."""
    path = folder / INDEX
    if not path.exists():
        return {}
    try:
        files = msgspec.json.decode(path.read_bytes(), type=Index).files
        inside = folder.resolve()
        outside = [name for name in files if not (folder / name).parent.resolve().is_relative_to(inside)]
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


def _refuse_changed(folder: Path, digests: Mapping[str, str], before: Mapping[str, str]) -> None:
    changed = list(_changed(folder, digests, before))
    if changed:
        raise ManifestError(
            "files in the folder are not as an emit left them, and would be lost",
            got=few(changed, most=5),
            allowed="files that emit wrote and nobody changed; others only under other names",
            way_out="move them away, or emit to another folder",
            where=Where(shown(folder)),
        )


def _changed(folder: Path, digests: Mapping[str, str], before: Mapping[str, str]) -> Iterator[str]:
    """List files with other contents than an emit wrote or this one will write."""
    for name in sorted({*digests, *before}):
        path = folder / name
        if not path.exists() and not path.is_symlink():
            continue
        allowed = (before.get(name), digests.get(name))
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
