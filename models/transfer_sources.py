"""Which measured profiles a model with too few points of its own may be predicted from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from libra_plan.models.held_gradients import micro_batches_of
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.schema import ProfileFile

__all__ = ["alike", "prior_donors", "same_way"]


def prior_donors(profiles: Mapping[str, LoadedProfile], file: ProfileFile) -> list[LoadedProfile]:
    """Choose one profile for every other model of the same phase, GPU class and way to compute.

    Of several of one model the one with most points is taken, the first by name of equals.
    """
    others = [each for _, each in sorted(profiles.items()) if each.file.model.id != file.model.id]
    return _one_a_model([each for each in others if same_way(each.file, file)])


def alike(profiles: Iterable[LoadedProfile]) -> list[LoadedProfile]:
    """Choose among profiles of one phase those that compute in one way, one for every model.

    The way is the one that most models were measured in; of equals the one of the first profile. Of a
    model the first counts, but for one with more points that differs in its mode alone.
    """
    ways: dict[tuple[object, ...], dict[str, LoadedProfile]] = {}
    for each in profiles:
        chosen = ways.setdefault(_way(each.file), {})
        known = chosen.setdefault(each.file.model.id, each)
        if len(each.points) > len(known.points) and known.file.software.mode != each.file.software.mode:
            chosen[each.file.model.id] = each
    return list(max(ways.values(), key=len, default={}).values())


def same_way(one: ProfileFile, other: ProfileFile) -> bool:
    """Tell whether two profiles are of one phase, GPU class and way to compute."""
    return _way(one) == _way(other)


def _one_a_model(profiles: Iterable[LoadedProfile]) -> list[LoadedProfile]:
    chosen: dict[str, LoadedProfile] = {}
    for each in profiles:
        known = chosen.setdefault(each.file.model.id, each)
        if len(each.points) > len(known.points):
            chosen[each.file.model.id] = each
    return list(chosen.values())


def _way(file: ProfileFile) -> tuple[object, ...]:
    """Give what donors must share: what a step does, not how its states are kept.

    A decode step without a mask takes a small part of one with it, and a micro-batch of an
    accumulated step does not what a whole step does.
    """
    software, trains = file.software, file.phase == "train"
    computes_in = software.precision.rsplit("/", maxsplit=1)[-1]  # `fp32-master/bf16` computes in bf16
    return (
        file.phase,
        file.hardware.gpu_class,
        software.framework,
        computes_in,
        software.recompute,
        None if trains else software.mode,  # ranks (`ddp`) are counted apart
        software.lora_rank is None,
        micro_batches_of(file),
    )
