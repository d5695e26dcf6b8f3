"""Keep the manifests of a run beside its journal, which names them by digest."""

from __future__ import annotations

from pathlib import Path

from libra_plan.planner.launchers.document import manifest_to_json, read_manifest
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.profiles.durable import write_atomically

__all__ = ["keep_plan", "read_plan"]


def keep_plan(folder: Path, manifest: Manifest) -> None:
    """Keep a manifest, before the journal names it."""
    path = _path(folder, manifest.metadata.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, manifest_to_json(manifest).encode())


def read_plan(folder: Path, digest: str) -> Manifest:
    """Read a manifest that the journal names, and check that it is unchanged."""
    return read_manifest(_path(folder, digest))


def _path(folder: Path, digest: str) -> Path:
    return folder / "plans" / f"{digest.removeprefix('sha256:')}.json"
