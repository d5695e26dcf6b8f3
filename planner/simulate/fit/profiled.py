"""Costs of a base world from measured profiles, before recordings scale them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from libra_plan.errors import WorkloadError
from libra_plan.models.costs.passes import SoftFloorForm
from libra_plan.models.fit import FittedProfile
from libra_plan.planner.simulate.fit.evidence import six_digits
from libra_plan.planner.simulate.world import Costs, DecodeCosts, WorldTask

__all__ = ["with_profiles"]


def with_profiles(task: WorldTask, profiles: Sequence[FittedProfile]) -> tuple[WorldTask, list[str]]:
    """Replace the task's costs by those of measured layouts, and note what was taken from which profile.

    Decode: the affine step of each measured tp, with the room and slots of the task's own entry for it.
    Training and scoring: one data-parallel rank of the layout whose GPUs the task's replicas have.
    """
    costs, said = task.costs, []
    for each in profiles:
        name, phase = each.profile.id, each.profile.phase
        if phase == "decode":
            costs, what = _decoding(costs, each)
        else:
            costs, what = _passing(costs, each, training=phase == "train")
        said.append(f"{task.id}.costs.{what}: profile {name}")
    return msgspec.structs.replace(task, costs=costs), said


def _decoding(costs: Costs, profile: FittedProfile) -> tuple[Costs, str]:
    measured = {layout.tp: layout for layout in profile.layouts if layout.gpus_per_replica == layout.tp}
    new: list[DecodeCosts] = []
    for entry in costs.decode:
        if entry.tp not in measured:
            new.append(entry)
            continue
        step = profile.decode_coefficients(measured[entry.tp])
        new.append(
            msgspec.structs.replace(
                entry,
                fixed_s=six_digits(step.fixed_s),
                per_sequence_s=six_digits(step.per_sequence_s),
                per_token_s=six_digits(step.per_token_s),
            )
        )
    changed = [each.tp for each in costs.decode if each.tp in measured]
    if not changed:
        raise _nothing(profile, "decode costs for tp", [each.tp for each in costs.decode], sorted(measured))
    return msgspec.structs.replace(costs, decode=tuple(new)), f"decode, tp {', '.join(map(str, changed))}"


def _passing(costs: Costs, profile: FittedProfile, *, training: bool) -> tuple[Costs, str]:
    forms = {
        fit.layout.gpus_per_replica: fit.time.form
        for fit in profile.fits
        if fit.time is not None and isinstance(fit.time.form, SoftFloorForm)
    }
    if training:
        train = costs.train
        if train is None or train.gpus not in forms:
            raise _nothing(profile, "training replicas of", [train.gpus] if train else [], sorted(forms))
        form = forms[train.gpus]
        fixed, token, pair = (six_digits(v) for v in (form.fixed_s, form.per_token_s, form.per_token_pair_s))
        train = msgspec.structs.replace(train, fixed_s=fixed, per_token_s=token, per_square_s=pair)
        return msgspec.structs.replace(costs, train=train), "train"
    able = [each for each in costs.scoring if each.gpus in forms]
    if not able:
        raise _nothing(profile, "scoring replicas of", [each.gpus for each in costs.scoring], sorted(forms))
    scoring = tuple(
        msgspec.structs.replace(each, per_token_s=six_digits(forms[each.gpus].per_token_s))
        if each in able
        else each
        for each in costs.scoring
    )
    return msgspec.structs.replace(costs, scoring=scoring), "scoring"


def _nothing(
    profile: FittedProfile, what: str, wanted: Sequence[int], measured: Sequence[int]
) -> WorkloadError:
    return WorkloadError(
        f"profile {profile.profile.id} tells no costs of this task",
        got=f"{what} {', '.join(map(str, wanted)) or 'nothing'}; measured: {', '.join(map(str, measured))}",
        way_out="give the task an entry of a measured size, or name another profile",
    )
