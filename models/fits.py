"""Fit the profiles that a workload names, one fit per set of joined profiles, and cache the fits.

Fits are kept between runs, so that a solve neither fits again nor imports scipy. The key is the SHA-256
of the profile, its points and all code of models: a changed row or a changed form has another key. A fit
that cannot be read is made and written again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from libra_plan.errors import RefusedError
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.lookup import prior_donors
from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder, load_profiles, shipped_folder
from libra_plan.profiles.home import home_folder
from libra_plan.profiles.schema import ProfileFile

__all__ = [
    "Fits",
    "JoinedProfile",
    "by_phase",
    "cache_folder",
    "cached_fit",
    "dump_fit",
    "fit_folder",
    "fit_key",
    "fit_name",
    "joined_profiles",
    "load_fit",
]

Fits: TypeAlias = Mapping[str, FittedProfile | RefusedError]
"""Fits by the name of the profile (`fit_name`); a profile that cannot be fitted has its refusal."""


class JoinedProfile(NamedTuple):
    """A profile with those that join it in `extra`, and remarks on those that cannot."""

    profile: LoadedProfile
    notes: tuple[str, ...]


def by_phase(profiles: Iterable[LoadedProfile]) -> dict[str, JoinedProfile]:
    """Join the profiles of each phase into the first of it; all are of one GPU class.

    A second profile is, say, the same training over data-parallel ranks. One of another model,
    stack or memory size is another profile, and left out with a remark.
    """
    found: dict[str, JoinedProfile] = {}
    for profile in profiles:
        phase = profile.file.phase
        if phase not in found:
            found[phase] = JoinedProfile(profile, ())
            continue
        first, notes = found[phase]
        difference = _difference(first.file, profile.file)
        if difference is None:
            found[phase] = JoinedProfile(replace(first, extra=(*first.extra, profile)), notes)
        else:
            said = f"{profile.file.id} is not used: its {difference} differs from {first.file.id}"
            found[phase] = JoinedProfile(first, (*notes, said))
    return found


def fit_name(profile: LoadedProfile) -> str:
    """Return the name of a fit: the profile's id, and with a plus the ids of those that join it."""
    return "+".join((profile.file.id, *(each.file.id for each in profile.extra)))


def joined_profiles(
    folder: ProfilesFolder, gpu_classes: Collection[str] | None = None
) -> Iterator[LoadedProfile]:
    """Yield what the workload's roles are priced from, each once; only of some GPU classes, where given."""
    seen: set[str] = set()
    for role in (role for task in (folder.workload.tasks if folder.workload else ()) for role in task.roles):
        of_class: dict[str, list[LoadedProfile]] = {}
        for name in role.profiles:
            of_class.setdefault(folder.profiles[name].file.hardware.gpu_class, []).append(
                folder.profiles[name]
            )
        for gpu_class, profiles in of_class.items():
            if gpu_classes is None or gpu_class in gpu_classes:
                for joined in by_phase(profiles).values():
                    if fit_name(joined.profile) not in seen:
                        seen.add(fit_name(joined.profile))
                        yield joined.profile


def fit_folder(
    folder: ProfilesFolder,
    *,
    gpu_classes: Collection[str] | None = None,
    allow_prior: bool = False,
) -> Fits:
    """Fit what a folder's workload names, through the cache.

    With `allow_prior` a profile with too few points leans on other models, those of the folder and
    the shipped ones. `gpu_classes` limits the fits to classes of a cluster.
    """
    return {
        fit_name(each): _fitted(each, folder, allow_prior) for each in joined_profiles(folder, gpu_classes)
    }


def _fitted(
    profile: LoadedProfile, folder: ProfilesFolder, allow_prior: bool
) -> FittedProfile | RefusedError:
    fitted = cached_fit(profile)
    if fitted.layouts or not allow_prior:
        return fitted
    known = {**load_profiles(shipped_folder()), **load_profiles(folder.path), **folder.profiles}
    donors = [cached_fit(each) for each in prior_donors(known, profile.file)]
    extra = [(each.file, each.points) for each in profile.extra]
    try:
        return fit_profile(profile.file, profile.points, donors=donors, extra=extra)
    except RefusedError as refusal:
        return refusal


def _difference(one: ProfileFile, other: ProfileFile) -> str | None:
    """Return the part in which two profiles differ; the mode (one rank, ddp) does not count."""
    if one.model != other.model:
        return "model"
    if (one.hardware.memory_mib, one.hardware.mig) != (other.hardware.memory_mib, other.hardware.mig):
        return "hardware"
    modes = (msgspec.structs.replace(file.software, mode=None) for file in (one, other))
    return None if len({msgspec.json.encode(each) for each in modes}) == 1 else "software"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Find the cache: $LIBRA_PLAN_CACHE, else libra-plan in $XDG_CACHE_HOME or ~/.cache."""
    own = environment.get("LIBRA_PLAN_CACHE")
    if own:
        return Path(own)
    shared = environment.get("XDG_CACHE_HOME", "")  # one that is not absolute is to be ignored
    return (
        Path(shared) if Path(shared).is_absolute() else home_folder(environment) / ".cache"
    ) / "libra-plan"


def cached_fit(profile: LoadedProfile, *, folder: Path | None = None) -> FittedProfile:
    """Fit a profile with those that join it, or take the fit from the user's cache or another `folder`.

    A cache that cannot be written is no error.
    """
    entry = (folder or cache_folder(os.environ)) / "fits" / f"{fit_key(profile)}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return load_fit(entry.read_bytes())
    fitted = fit_profile(
        profile.file, profile.points, extra=[(each.file, each.points) for each in profile.extra]
    )
    with contextlib.suppress(OSError):
        _write(entry, dump_fit(fitted))
    return fitted


def fit_key(profile: LoadedProfile) -> str:
    """Return the SHA-256 of profile, points and code of models, 64 hexadecimal digits."""
    digest = hashlib.sha256(_code_digest())
    everything = [[each.file, list(each.points)] for each in (profile, *profile.extra)]
    digest.update(msgspec.json.encode(everything, order="deterministic"))
    return digest.hexdigest()


def dump_fit(fitted: FittedProfile) -> bytes:
    """Write a fit as JSON with the SHA-256 of its text in front, so that damage shows."""
    body = msgspec.json.encode(fitted)
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def load_fit(data: bytes) -> FittedProfile:
    """Read a fit; ValueError or a msgspec error when it is damaged."""
    digest, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("the stored fit is damaged")
    return msgspec.json.decode(body, type=FittedProfile)


@functools.cache
def _code_digest() -> bytes:
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(here.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()


def _write(entry: Path, data: bytes) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=entry.parent, prefix=".fit-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).replace(entry)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
