"""`validate`: check a profiles folder, one profile, a cluster or a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from libra_plan.errors import InputError
from libra_plan.models.clusters import cluster_of
from libra_plan.notes import Notes, log_note
from libra_plan.planner.inputs.cluster import measured_mib, memory_notes, unknown_memory
from libra_plan.planner.inputs.gpu_names import check_gpu_names
from libra_plan.planner.launchers.check import require_sound_manifest
from libra_plan.planner.launchers.document import read_manifest
from libra_plan.planner.launchers.emit import INDEX
from libra_plan.planner.launchers.manifest import KIND
from libra_plan.planner.launchers.store import CURRENT
from libra_plan.profiles.catalog import ProfilesFolder, load_cluster, load_folder, load_profile
from libra_plan.profiles.counting import counted
from libra_plan.profiles.document import read_document, shown
from libra_plan.profiles.plausibility import mixed_models, unmeasured_asks
from libra_plan.profiles.schema import ClusterFile

__all__ = ["validate"]

_ALLOWED = (
    "a profiles folder (workload.yaml, cluster.yaml, sub-folders with profile.yaml), a profile's folder, "
    "a folder of `solve --out` (manifest.json), a cluster file, a manifest"
)
_CLUSTER_KEYS = {field.encode_name for field in msgspec.structs.fields(ClusterFile)} - {
    "schema_version",
    "name",
}


def validate(path: str | Path, *, notes: Notes = log_note) -> tuple[str, ...]:
    """Check a profiles folder, a profile, a cluster file or a manifest.

    Parameters
    ----------
    path
        The file or folder.
    notes
        A function that gets a line on what was taken for granted. Default: it is logged.

    Returns
    -------
    tuple[str, ...]
        What lies there, a line each, warnings included.

    Raises
    ------
    InputError
        At the first fault; the message names file, line and key.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.validate("profiles/h200-qwen2.5-0.5b-decode")[0]
    'profiles/h200-qwen2.5-0.5b-decode: profile h200-qwen2.5-0.5b-decode, 19 points: sound'
    """
    return tuple(_described(Path(path), notes))


def _described(path: Path, notes: Notes) -> Iterator[str]:
    if path.is_dir():
        yield from _folder(path, notes)
        return
    data = read_document(path).data
    keys = {str(key) for key in data} if isinstance(data, dict) else set()
    if "kind" in keys or "apiVersion" in keys or path.name.startswith("manifest"):
        yield _manifest(path)
    elif keys & _CLUSTER_KEYS or path.name.startswith("cluster"):
        file, _ = load_cluster(path)
        yield from (f"warning: {line}" for line in unknown_memory(file, {}))
        yield f"{path}: cluster {file.name}, {len(file.nodes)} nodes: sound"
    else:
        raise InputError(
            "not a file that can be checked alone",
            got=f"{shown(path)} with the keys {', '.join(sorted(keys)) or 'none'}",
            allowed=f"a cluster file (it has `nodes`), a manifest (it has `kind: {KIND}`), or a folder",
            way_out=f"workloads and profiles are checked with their folder: validate {shown(path.parent)}",
        )


def _manifest(path: Path) -> str:
    manifest = read_manifest(path)
    require_sound_manifest(manifest)
    gpus = {gpu for task in manifest.spec.tasks for role in task.roles for r in role.replicas for gpu in r}
    return (
        f"{path}: manifest {manifest.metadata.name}, generation {manifest.metadata.generation}, "
        f"{counted(len(manifest.spec.tasks), 'task')} on {counted(len(gpus), 'GPU')}: sound"
    )


def _folder(path: Path, notes: Notes) -> Iterator[str]:
    has_manifest = (path / CURRENT).is_file()
    if has_manifest:
        yield _manifest(path / CURRENT)
    if (path / "profile.yaml").exists():
        profile = load_profile(path)
        yield f"{path}: profile {profile.file.id}, {len(profile.points)} points: sound"
        yield from (f"warning: {line}" for line in profile.warnings)
        return
    folder = load_folder(path)
    if folder.profiles or folder.workload or folder.cluster or folder.switching:
        yield from _contents(path, folder, notes)
    elif not has_manifest:
        emitted = (path / INDEX).is_file()
        raise InputError(
            "there is nothing to check in this folder",
            got=shown(path),
            allowed=_ALLOWED,
            way_out="these are a launcher's files: check the manifest they were made from"
            if emitted
            else "name another folder",
        )


def _contents(path: Path, folder: ProfilesFolder, notes: Notes) -> Iterator[str]:
    for name, profile in sorted(folder.profiles.items()):
        yield f"profile {name}: {profile.file.phase}, {len(profile.points)} points"
    if folder.workload is not None:
        for task in folder.workload.tasks:
            yield f"task {task.id}: {', '.join(f'{role.id} ({role.kind})' for role in task.roles)}"
        for each in folder.workload.sharing:
            yield f"tasks {', '.join(each.tasks)} may share: {each.kind}"
        yield from (f"warning: {line}" for line in mixed_models(folder.workload, folder.profiles))
        yield from (f"warning: {line}" for line in unmeasured_asks(folder.workload, folder.profiles))
    if folder.cluster is not None:
        yield from _cluster_in(folder, folder.cluster, notes)
    yield from (f"warning: {line}" for line in folder.warnings)
    yield f"{path}: sound"


def _cluster_in(folder: ProfilesFolder, file: ClusterFile, notes: Notes) -> Iterator[str]:
    """Check the cluster as `solve` would see it, and the workload's GPU names with it."""
    measured = measured_mib(folder)
    unknown = unknown_memory(file, measured)
    if unknown and not folder.profiles:
        yield from (f"warning: {line}" for line in unknown)
        yield f"cluster {file.name}: {len(file.nodes)} nodes"
        return
    for line in memory_notes(file, measured):
        notes(line)
    cluster = cluster_of(file, measured)
    check_gpu_names(folder, cluster)
    yield f"cluster {cluster.name}: {len(cluster.gpus)} usable GPUs on {len(cluster.nodes)} nodes"
