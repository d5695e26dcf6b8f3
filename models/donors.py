"""Which measured profiles a model with too few points of its own may be predicted from."""

from __future__ import annotations

from collections.abc import Mapping

from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.schema import ProfileFile

__all__ = ["prior_donors"]


def prior_donors(profiles: Mapping[str, LoadedProfile], file: ProfileFile) -> list[LoadedProfile]:
    """Choose one profile for every other model of the same phase, GPU class and way to compute.

    Of several of one model the one with most points is taken, the first by name of equals.
    """
    chosen: dict[str, LoadedProfile] = {}
    for _, each in sorted(profiles.items()):
        if each.file.model.id == file.model.id or _way(each.file) != _way(file):
            continue
        known = chosen.setdefault(each.file.model.id, each)
        if len(each.points) > len(known.points):
            chosen[each.file.model.id] = each
    return list(chosen.values())


def _way(file: ProfileFile) -> tuple[object, ...]:
    software = file.software
    computes_in = software.precision.rsplit("/", maxsplit=1)[-1]  # `fp32-master/bf16` computes in bf16
    return (file.phase, file.hardware.gpu_class, software.framework, computes_in, software.recompute)
