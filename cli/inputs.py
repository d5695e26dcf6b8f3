"""From flags to a priced problem: the profiles folder, the cluster, the running plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.cli import render
from libra_plan.cli.cross_checks import check_gpu_names, memory_notes
from libra_plan.cli.move_costs import read_moves, with_digest
from libra_plan.errors import ClusterError, InputError, Where, WorkloadError
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.cli.observed import Observed
    from libra_plan.models.topology import Cluster
    from libra_plan.planner.launchers.manifest import Manifest
    from libra_plan.planner.problem import Problem
    from libra_plan.profiles.catalog import ProfilesFolder
    from libra_plan.profiles.schema import ClusterFile, WorkloadFile

__all__ = [
    "ClusterFlags",
    "Inputs",
    "read_cluster",
    "read_inputs",
    "read_manifest_at",
    "set_aside_notes",
]


@dataclass(frozen=True)
class ClusterFlags:
    """How the user named the cluster; at most one of gpus, cluster and local."""

    gpus: int | None = None
    gpus_per_node: int = 8
    gpu_class: str | None = None
    cluster: Path | None = None
    local: bool = False


@dataclass(frozen=True)
class Inputs:
    """Everything a verb that plans needs."""

    folder: ProfilesFolder
    cluster: Cluster
    problem: Problem
    parent: Manifest | None


def read_inputs(
    profiles: Path,
    flags: ClusterFlags,
    *,
    policy: str = "throughput",
    parent: Manifest | None = None,
    allow_prior: bool = False,
    seed: int = 0,
    ahead_steps: int | None = None,
    observed: Observed | None = None,
    move_costs: Sequence[Path] = (),
    change: Callable[[WorkloadFile], WorkloadFile] | None = None,
) -> Inputs:
    """Load a profiles folder and price its workload on the cluster the flags name.

    `parent` is the manifest of the running plan, `observed` what corrects the stage times. Moving away
    from the parent costs what was recorded: in the first of the files `move_costs`, or beside the
    profiles, that is there. `change` is what users have asked for since the workload was written.
    """
    from libra_plan.planner.launchers.document import placements_of
    from libra_plan.planner.pricing import price_workload
    from libra_plan.planner.problem import Policy

    folder = _read_folder(profiles, change)
    cluster = read_cluster(folder, flags)
    check_gpu_names(folder, cluster)
    moves = {} if parent is None else read_moves(move_costs, folder.path)
    problem = price_workload(
        folder,
        cluster,
        policy=Policy(policy),
        running=() if parent is None else placements_of(parent),
        seed=seed,
        allow_prior=allow_prior,
        at_steps_ahead=ahead_steps,
        corrections=None if observed is None else observed.file,
        moves=moves,
    )
    if observed is not None:
        problem = observed.noted(problem)
    return Inputs(folder, cluster, with_digest(problem, moves), parent)


def _read_folder(profiles: Path, change: Callable[[WorkloadFile], WorkloadFile] | None) -> ProfilesFolder:
    """Load a folder that has a workload, with what users have asked for since."""
    from libra_plan.profiles.catalog import find_folder, load_folder

    folder = load_folder(find_folder(profiles), named_only=True)
    if folder.workload is None:
        raise WorkloadError(
            "there is nothing to plan: the folder has no workload.yaml",
            got=folder.path,
            allowed="a folder with workload.yaml; profiles it names may lie elsewhere",
            way_out="start from the shipped one: profiles/workload.yaml",
        )
    return folder if change is None else _with_workload(folder, change(folder.workload))


def _with_workload(folder: ProfilesFolder, workload: WorkloadFile) -> ProfilesFolder:
    """Put another workload into a folder, with the profiles that it names and the folder lacks."""
    from libra_plan.profiles.catalog import load_profile, shipped_folder, user_folder

    profiles = dict(folder.profiles)
    for name in dict.fromkeys(n for task in workload.tasks for role in task.roles for n in role.profiles):
        places = (place / name for place in (folder.path, user_folder(), shipped_folder()))
        found = next((place for place in places if (place / "profile.yaml").is_file()), None)
        if name not in profiles and found is not None:
            profiles[name] = load_profile(found)
        elif name not in profiles:
            raise WorkloadError(
                "a task names a profile that is not there", got=name, allowed="a known profile"
            )
    return replace(folder, workload=workload, profiles=profiles)


def set_aside_notes(folder: ProfilesFolder) -> Iterator[str]:
    """Tell of rows set aside in the profiles that the workload names, wherever they lie."""
    roles = [role for task in (folder.workload.tasks if folder.workload else ()) for role in task.roles]
    for name in dict.fromkeys(name for role in roles for name in role.profiles):
        profile = folder.profiles[name]
        aside = len(profile.set_aside)
        if aside:
            verb = "is" if aside == 1 else "are"
            yield f"{counted(aside, 'row')} of {name} {verb} set aside; libra-plan validate says why"


def read_manifest_at(path: Path) -> Manifest:
    """Read a manifest file, or the current one of a folder that `solve --out` wrote."""
    from libra_plan.planner.launchers.document import read_manifest
    from libra_plan.planner.launchers.store import CURRENT

    return read_manifest(path / CURRENT if path.is_dir() else path)


def read_cluster(folder: ProfilesFolder, flags: ClusterFlags) -> Cluster:
    """Build the cluster from --gpus, --local or --cluster, or else the folder's cluster.yaml."""
    from libra_plan.models.clusters import cluster_of, uniform_cluster
    from libra_plan.profiles.catalog import load_cluster
    from libra_plan.profiles.wording import did_you_mean

    named = [flags.gpus is not None, flags.cluster is not None, flags.local]
    if sum(named) > 1:
        raise InputError("more than one cluster was named", allowed="one of --gpus, --cluster, --local")
    measured = measured_mib(folder)
    if flags.local:
        from libra_plan.planner.telemetry.local import local_cluster
        from libra_plan.planner.telemetry.nvml import read_cards

        return local_cluster(read_cards(), _class_of(folder, measured))
    if flags.gpus is not None:
        gpu_class = flags.gpu_class or _only_class(measured)
        if gpu_class not in measured:
            raise ClusterError(
                "no profile was measured on this GPU class",
                got=gpu_class,
                allowed=", ".join(sorted(measured)),
                way_out=did_you_mean(gpu_class, measured) or "name one of these with --gpu-class",
            )
        return uniform_cluster(flags.gpus, gpu_class, measured[gpu_class], flags.gpus_per_node)
    if flags.cluster is not None:
        return cluster_of(_measured_on(load_cluster(flags.cluster)[0], flags.cluster, measured), measured)
    if folder.cluster is not None:
        return cluster_of(_measured_on(folder.cluster, folder.path, measured), measured)
    raise InputError(
        "no cluster was named and the folder has no cluster.yaml",
        got=folder.path,
        allowed="--gpus N, --cluster FILE, --local or cluster.yaml in the folder",
        way_out="try --gpus 8",
    )


def _measured_on(file: ClusterFile, path: Path, measured: dict[str, float]) -> ClusterFile:
    """Refuse a cluster of which no GPU can be planned on: no profile was measured on its classes."""
    from libra_plan.profiles.plausibility import unmeasured_classes

    said = unmeasured_classes(file, measured)
    if len(said) == len({node.gpu_class for node in file.nodes}):
        raise ClusterError("; ".join(said), way_out="or measure a profile there", where=Where(str(path)))
    for line in said:
        render.note(f"warning: {line}")
    for line in memory_notes(file, measured):
        render.note(line)
    return file


def measured_mib(folder: ProfilesFolder) -> dict[str, float]:
    """Map each GPU class to the smallest memory a profile of the workload was measured with, MiB."""
    found: dict[str, float] = {}
    named = set()
    if folder.workload is not None:
        named = {name for task in folder.workload.tasks for role in task.roles for name in role.profiles}
    for name, profile in folder.profiles.items():
        if named and name not in named:
            continue
        hardware = profile.file.hardware
        found[hardware.gpu_class] = min(found.get(hardware.gpu_class, float("inf")), hardware.memory_mib)
    return found


def _class_of(folder: ProfilesFolder, measured: dict[str, float]) -> dict[str, str]:
    """Map the names NVML gives GPUs to the classes that profiles are measured on."""
    hardware = [profile.file.hardware for profile in folder.profiles.values()]
    return {
        each.nvml_name: each.gpu_class for each in hardware if each.nvml_name and each.gpu_class in measured
    }


def _only_class(measured: dict[str, float]) -> str:
    if len(measured) == 1:
        return next(iter(measured))
    raise ClusterError(
        "--gpus N needs to know which GPUs",
        got=f"{counted(len(measured), 'GPU class', 'GPU classes')} in the profiles",
        allowed=", ".join(sorted(measured)) or "none: there is no profile",
        way_out="add --gpu-class",
    )
