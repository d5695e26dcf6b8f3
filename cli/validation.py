"""What `validate` reads and says: a profiles folder, one profile, a cluster, a workload, a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from libra_plan.errors import InputError
from libra_plan.models.clusters import cluster_of
from libra_plan.planner.manifests.check import require_sound
from libra_plan.planner.manifests.document import read_manifest
from libra_plan.planner.manifests.manifest import KIND
from libra_plan.profiles.catalog import load_cluster, load_folder, load_profile
from libra_plan.profiles.document import read_document

__all__ = ["describe"]


def describe(path: Path) -> Iterator[str]:
    """Check what lies at a path and say what it is; raise an InputError at the first fault."""
    if path.is_dir():
        yield from _folder(path)
        return
    data = read_document(path).data
    if isinstance(data, dict) and data.get("kind") == KIND:
        manifest = read_manifest(path)
        require_sound(manifest)
        gpus = {
            gpu for task in manifest.spec.tasks for role in task.roles for r in role.replicas for gpu in r
        }
        yield (
            f"{path}: manifest {manifest.metadata.name}, generation {manifest.metadata.generation}, "
            f"{len(manifest.spec.tasks)} tasks on {len(gpus)} GPUs: sound"
        )
    elif isinstance(data, dict) and "nodes" in data:
        file, _ = load_cluster(path)
        yield f"{path}: cluster {file.name}, {len(file.nodes)} nodes: sound"
    else:
        raise InputError(
            "not a file that can be checked alone",
            got=path,
            allowed="a profiles folder, a profile's folder, a cluster file, a manifest",
            way_out="a workload is checked with its folder: libra-plan validate FOLDER",
        )


def _folder(path: Path) -> Iterator[str]:
    if (path / "profile.yaml").exists():
        profile = load_profile(path)
        yield f"{path}: profile {profile.file.id}, {len(profile.points)} points: sound"
        yield from (f"warning: {line}" for line in profile.warnings)
        return
    folder = load_folder(path)
    for name, profile in sorted(folder.profiles.items()):
        yield f"profile {name}: {profile.file.phase}, {len(profile.points)} points"
    if folder.workload is not None:
        for task in folder.workload.tasks:
            yield f"task {task.id}: {', '.join(f'{role.id} ({role.kind})' for role in task.roles)}"
    if folder.cluster is not None:
        cluster = cluster_of(folder.cluster)
        yield f"cluster {cluster.name}: {len(cluster.gpus)} usable GPUs on {len(cluster.nodes)} nodes"
    yield from (f"warning: {line}" for line in folder.warnings)
    yield f"{path}: sound"
