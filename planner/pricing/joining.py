"""Several profiles of one phase for a role: points of the same model and stack join in one fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import msgspec

from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.schema import ProfileFile

__all__ = ["Joined", "by_phase"]


class Joined(NamedTuple):
    """A profile with those that join it in `extra`, and remarks on those that cannot."""

    profile: LoadedProfile
    notes: tuple[str, ...]


def by_phase(profiles: Iterable[LoadedProfile]) -> dict[str, Joined]:
    """Join the profiles of each phase into the first of it; all are of one GPU class.

    A second profile is, say, the same training over data-parallel ranks. One of another model,
    stack or memory size is another profile, and left out with a remark.
    """
    found: dict[str, Joined] = {}
    for profile in profiles:
        phase = profile.file.phase
        if phase not in found:
            found[phase] = Joined(profile, ())
            continue
        first, notes = found[phase]
        difference = _difference(first.file, profile.file)
        if difference is None:
            found[phase] = Joined(replace(first, extra=(*first.extra, profile)), notes)
        else:
            said = f"{profile.file.id} is not used: its {difference} differs from {first.file.id}"
            found[phase] = Joined(first, (*notes, said))
    return found


def _difference(one: ProfileFile, other: ProfileFile) -> str | None:
    """Name what keeps two profiles apart; the mode (one rank, ddp) does not."""
    if one.model != other.model:
        return "model"
    if (one.hardware.memory_mib, one.hardware.mig) != (other.hardware.memory_mib, other.hardware.mig):
        return "hardware"
    modes = (msgspec.structs.replace(file.software, mode=None) for file in (one, other))
    return None if len({msgspec.json.encode(each) for each in modes}) == 1 else "software"
