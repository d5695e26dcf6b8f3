"""Fit what a workload names: one value for every set of profiles that a role joins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from libra_plan.errors import RefusedError
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.fit_cache import cached_fit
from libra_plan.models.transfer_sources import prior_donors
from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder, load_folder, shipped_folder
from libra_plan.profiles.schema import ProfileFile

__all__ = ["Fits", "JoinedProfile", "by_phase", "fit_folder", "fit_name", "joined_profiles"]

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
    cache: Path | None = None,
) -> Fits:
    """Fit what a folder's workload names, through the cache.

    With `allow_prior` a profile with too few points leans on other models, those of the folder and
    the shipped ones. `gpu_classes` limits the fits to classes of a cluster, `cache` is another folder
    than the user's.
    """
    return {
        fit_name(each): _fitted(each, folder, allow_prior, cache)
        for each in joined_profiles(folder, gpu_classes)
    }


def _fitted(
    profile: LoadedProfile, folder: ProfilesFolder, allow_prior: bool, cache: Path | None
) -> FittedProfile | RefusedError:
    fitted = cached_fit(profile, folder=cache)
    if fitted.layouts or not allow_prior:
        return fitted
    known = {**load_folder(shipped_folder()).profiles, **folder.profiles}
    donors = [cached_fit(each, folder=cache) for each in prior_donors(known, profile.file)]
    extra = [(each.file, each.points) for each in profile.extra]
    try:
        return fit_profile(profile.file, profile.points, donors=donors, extra=extra)
    except RefusedError as refusal:
        return refusal


def _difference(one: ProfileFile, other: ProfileFile) -> str | None:
    """Name what keeps two profiles apart; the mode (one rank, ddp) does not."""
    if one.model != other.model:
        return "model"
    if (one.hardware.memory_mib, one.hardware.mig) != (other.hardware.memory_mib, other.hardware.mig):
        return "hardware"
    modes = (msgspec.structs.replace(file.software, mode=None) for file in (one, other))
    return None if len({msgspec.json.encode(each) for each in modes}) == 1 else "software"
