"""Find and load a profiles folder: the workload, the cluster, every profile and the switching costs."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from libra_plan.errors import ClusterError, InputError, ProfileError, Where, WorkloadError
from libra_plan.profiles import physics, wording
from libra_plan.profiles.cluster_checks import check_cluster
from libra_plan.profiles.counting import counted
from libra_plan.profiles.document import Document, decode, read_document, shown
from libra_plan.profiles.hardware import implausible_memory
from libra_plan.profiles.home import home_folder
from libra_plan.profiles.model_shapes import implausible_params
from libra_plan.profiles.place import Place
from libra_plan.profiles.plausibility import unmeasured_classes
from libra_plan.profiles.points import read_points
from libra_plan.profiles.schema import ClusterFile, Point, ProfileFile, SwitchingFile, WorkloadFile
from libra_plan.profiles.workload_checks import check_workload

__all__ = [
    "LoadedProfile",
    "ProfilesFolder",
    "find_folder",
    "find_profile",
    "load_cluster",
    "load_folder",
    "load_profile",
    "load_profiles",
    "load_switching",
    "load_workload",
    "profiles_at",
    "shipped_folder",
    "user_folder",
]

ENDINGS = (".yaml", ".yml", ".json")

FileT = TypeVar("FileT", bound=msgspec.Struct)


@dataclass(frozen=True)
class LoadedProfile:
    """A profile: its file, the points that can be true, and those set aside with the reason.

    `lines` gives the line of each point in the points file. `extra` are further profiles of the same
    model and stack whose points join its fit.
    """

    file: ProfileFile
    points: tuple[Point, ...]
    path: Path
    warnings: tuple[str, ...] = ()
    set_aside: tuple[physics.SetAside, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[int, ...] = ()
    extra: tuple[LoadedProfile, ...] = ()


@dataclass(frozen=True)
class ProfilesFolder:
    """What a profiles folder holds. `digests`: SHA-256 of every file read, by its name.

    `switching` is keyed by GPU class.
    """

    path: Path
    workload: WorkloadFile | None
    cluster: ClusterFile | None
    profiles: dict[str, LoadedProfile]
    switching: dict[str, SwitchingFile]
    digests: dict[str, str]
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        tasks = "no workload" if self.workload is None else counted(len(self.workload.tasks), "task")
        return f"ProfilesFolder({str(self.path)!r}: {tasks}, {counted(len(self.profiles), 'profile')})"


# ---------------------------------------------------------------- places


def shipped_folder() -> Path:
    """Return the folder of the profiles that come with the package."""
    return Path(__file__).parent


def user_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the user's own folder: $LIBRA_PLAN_PROFILES, else libra-plan/profiles in the XDG data home."""
    known = os.environ if environment is None else environment
    if known.get("LIBRA_PLAN_PROFILES"):
        return Path(known["LIBRA_PLAN_PROFILES"])
    data = known.get("XDG_DATA_HOME")
    home = Path(data) if data else home_folder(known) / ".local" / "share"
    return home / "libra-plan" / "profiles"


def find_folder(name: str | Path, environment: Mapping[str, str] | None = None) -> Path:
    """Find a profiles folder: the path itself, else that name in the user's folder, else the shipped one.

    The shipped folder answers to the name `profiles`.
    """
    if not isinstance(name, str | Path):
        raise ProfileError(
            "no profiles folder was named",
            got=repr(name),
            allowed="a path, or the name of a folder",
            way_out="try `profiles`, the shipped one",
        )
    path, user = Path(name), user_folder(environment)
    if path.is_dir():
        return path
    if path.is_file():
        raise ProfileError("this is a file, not a profiles folder", where=Where(shown(path)))
    if len(path.parts) == 1 and (user / path).is_dir():
        return user / path
    if path == Path("profiles"):
        return shipped_folder()
    raise ProfileError(
        "no such profiles folder",
        allowed=f"a folder, a name in {shown(user)}, or `profiles` for the shipped one",
        way_out="check the path",
        where=Where(shown(path)),
    )


def find_profile(name: str | Path) -> Path:
    """Find one profile: the folder itself, else that name in the user's folder, else a shipped one."""
    path = Path(name)
    if path.is_dir():
        return path
    places = (user_folder(), shipped_folder())
    for place in places:
        if len(path.parts) == 1 and _file(place / path, "profile", ProfileError) is not None:
            return place / path
    names = _names_in(places)
    raise ProfileError(
        "no such profile",
        allowed=wording.some_of(path.name, names),
        way_out=wording.did_you_mean(path.name, names) or "give the path of its folder",
        where=Where(shown(path)),
    )


# ---------------------------------------------------------------- single files


def _load(path: str | Path, shape: type[FileT], error: type[InputError]) -> tuple[FileT, Document]:
    document = read_document(path, error)
    return decode(document, shape, error), document


def load_cluster(path: str | Path) -> tuple[ClusterFile, str]:
    """Read and check a cluster file; return it with its SHA-256."""
    cluster, document = _load(path, ClusterFile, ClusterError)
    check_cluster(cluster, document)
    return cluster, document.sha256


def load_workload(path: str | Path) -> tuple[WorkloadFile, dict[str, str]]:
    """Read a workload file and check it without its profiles; return it with its SHA-256s.

    The digests are those of the file and of its trace files.
    """
    workload, document = _load(path, WorkloadFile, WorkloadError)
    return workload, _check_workload(workload, document, None, ())


def _check_workload(
    workload: WorkloadFile,
    document: Document,
    profiles: Mapping[str, LoadedProfile] | None,
    elsewhere: Iterable[str],
) -> dict[str, str]:
    known = None if profiles is None else {name: profile.file for name, profile in profiles.items()}
    digests = check_workload(workload, document, known, tuple(elsewhere))
    return {Path(document.path).name: document.sha256, **digests}


def load_switching(path: str | Path) -> tuple[SwitchingFile, str]:
    """Read a switching file; return it with its SHA-256."""
    switching, document = _load(path, SwitchingFile, ProfileError)
    return switching, document.sha256


def load_profile(folder: str | Path) -> LoadedProfile:
    """Read one profile folder: `profile.yaml` and the points it pins."""
    folder = Path(folder)
    path = _file(folder, "profile", ProfileError)
    if path is None:
        raise ProfileError("no profile.yaml in this folder", where=Where(shown(folder)))
    profile, document = _load(path, ProfileFile, ProfileError)
    place = Place(document, ProfileError)
    beside = Path(profile.points).name == profile.points
    place.refuse_if(not beside, "the points must lie beside the profile", "points", got=profile.points)
    wrong = implausible_memory(profile.hardware.gpu_class, profile.hardware.memory_mib)
    if wrong is not None:
        place.refuse(below="hardware.memory_mib", **wrong)
    wrong = implausible_params(profile.model)
    if wrong is not None:
        place.refuse(below="model.params", **wrong)
    table = read_points(folder / profile.points, profile.phase)
    place.refuse_if(
        table.sha256 != profile.provenance.points_sha256,
        f"{profile.points} is not the file that this profile describes",
        "provenance.points_sha256",
        got=f"SHA-256 {table.sha256}",
        allowed=profile.provenance.points_sha256,
        way_out="the points changed: run the importer again or update points_sha256",
    )
    kept, aside = physics.sift(table.rows, profile)
    if not any(row.point.status == "ok" for row in kept):
        first = aside[0].reason if aside else "no row has status ok"
        raise ProfileError("no point of this profile can be used", got=first, where=Where(table.path))
    return LoadedProfile(
        profile,
        tuple(row.point for row in kept),
        folder,
        tuple(f"{table.path}:{item.row.line}: row set aside: {item.reason}" for item in aside),
        aside,
        {f"{folder.name}/{path.name}": document.sha256, f"{folder.name}/{profile.points}": table.sha256},
        tuple(row.line for row in kept),
    )


# ---------------------------------------------------------------- the folder


def profiles_at(path: str | Path) -> dict[str, LoadedProfile]:
    """Load the profiles of a folder, or the one profile that the folder is, by id."""
    if _file(Path(path), "profile", ProfileError) is not None:
        profile = load_profile(path)
        return {profile.file.id: profile}
    folder = load_folder(find_folder(path))
    if not folder.profiles:
        raise ProfileError(
            "no profile in this folder",
            allowed="sub-folders with profile.yaml and points.csv",
            way_out="libra-plan profile measure or import makes some",
            where=Where(shown(folder.path)),
        )
    return dict(sorted(folder.profiles.items()))


def load_folder(
    path: str | Path, *, library: Iterable[Path] | None = None, named_only: bool = False
) -> ProfilesFolder:
    """Read and check everything a profiles folder holds.

    Every sub-folder with a `profile.yaml` is a profile; with `named_only` just those that the workload
    names are read. A profile that the workload names and the folder lacks is taken from `library`
    (default: the user's folder, then the shipped one).
    """
    root = Path(path)
    if not root.is_dir():
        raise ProfileError("no such profiles folder", way_out="check the path", where=Where(shown(root)))
    warnings: list[str] = []
    digests: dict[str, str] = {}
    workload_path = _file(root, "workload", WorkloadError)
    read = None if workload_path is None else _load(workload_path, WorkloadFile, WorkloadError)
    named = [] if read is None else sorted(_names(read[0]))
    profiles = (_named_in(root, named) if named_only else None) or load_profiles(root, warnings)
    switching = _switching_in([root], digests)
    cluster = None
    cluster_path = _file(root, "cluster", ClusterError)
    if cluster_path is not None:
        cluster, digests[cluster_path.name] = load_cluster(cluster_path)
    if read is not None:
        places = [
            p for p in ((user_folder(), shipped_folder()) if library is None else library) if p.is_dir()
        ]
        for name in sorted(set(named) - set(profiles)):
            place = next((each for each in places if _file(each / name, "profile", ProfileError)), None)
            if place is not None:
                profiles[name] = load_profile(place / name)
        classes = {profile.file.hardware.gpu_class for profile in profiles.values()}
        _switching_in(places, digests, switching, classes)
        digests.update(_check_workload(*read, profiles, _names_in(places)))
    for profile in profiles.values():
        digests.update(profile.digests)
        warnings += profile.warnings
    if cluster is not None and profiles:
        measured = sorted({profile.file.hardware.gpu_class for profile in profiles.values()})
        warnings += unmeasured_classes(cluster, measured)
    workload = None if read is None else read[0]
    ordered = dict(sorted(digests.items()))
    return ProfilesFolder(root, workload, cluster, profiles, switching, ordered, tuple(warnings))


def load_profiles(root: Path, warnings: list[str] | None = None) -> dict[str, LoadedProfile]:
    """Load the profile of every sub-folder, by id; `warnings` collects what is not read."""
    profiles: dict[str, LoadedProfile] = {}
    for folder in _sub_folders(root):
        if _file(folder, "profile", ProfileError) is None:
            if warnings is not None and (folder / "points.csv").is_file():
                warnings.append(f"{shown(folder)}: points.csv without profile.yaml is not read")
            continue
        profile = load_profile(folder)
        other = profiles.setdefault(profile.file.id, profile)
        if other is not profile:
            raise ProfileError(
                f"two profiles have the id `{profile.file.id}`",
                got=f"{shown(other.path)} and {shown(profile.path)}",
                way_out="give each its own id",
                where=Where(shown(profile.path), key="id"),
            )
    return profiles


def _sub_folders(root: Path) -> list[Path]:
    return sorted(entry for entry in root.iterdir() if entry.is_dir())


def _names(workload: WorkloadFile) -> set[str]:
    return {name for task in workload.tasks for role in task.roles for name in role.profiles}


def _file(folder: Path, stem: str, error: type[InputError]) -> Path | None:
    found = [folder / f"{stem}{ending}" for ending in ENDINGS if (folder / f"{stem}{ending}").is_file()]
    if len(found) > 1:
        raise error(
            f"more than one {stem} file",
            got=wording.one_of(path.name for path in found),
            way_out="keep one of them",
            where=Where(shown(folder)),
        )
    return found[0] if found else None


def _named_in(root: Path, names: Iterable[str]) -> dict[str, LoadedProfile] | None:
    """Load the profiles of these names; None unless each lies in a folder of its name."""
    if not all(_file(root / name, "profile", ProfileError) for name in names):
        return None
    profiles = {name: load_profile(root / name) for name in names}
    return profiles if all(profile.file.id == name for name, profile in profiles.items()) else None


def _names_in(places: Iterable[Path]) -> list[str]:
    """Name the profiles that a workload can borrow."""
    return [
        folder.name
        for place in places
        if place.is_dir()
        for folder in _sub_folders(place)
        if _file(folder, "profile", ProfileError)
    ]


def _switching_in(
    places: Iterable[Path],
    digests: dict[str, str],
    known: dict[str, SwitchingFile] | None = None,
    classes: Collection[str] = (),
) -> dict[str, SwitchingFile]:
    """Load switching costs by GPU class; beside `known` ones only those of `classes` that are lacking."""
    found: dict[str, SwitchingFile] = {} if known is None else known
    for folder in (folder for place in places for folder in _sub_folders(place)):
        path = _file(folder, "switching", ProfileError)
        if path is None:
            continue
        loaded, digest = load_switching(path)
        if known is not None and (loaded.gpu_class not in classes or loaded.gpu_class in found):
            continue
        if found.setdefault(loaded.gpu_class, loaded) is not loaded:
            raise ProfileError(
                f"two switching files for GPU class `{loaded.gpu_class}`",
                way_out="keep one of them",
                where=Where(shown(path), key="gpu_class"),
            )
        digests[f"{folder.name}/{path.name}"] = digest
    return found
