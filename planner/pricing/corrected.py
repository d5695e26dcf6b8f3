"""Multiply a role's stage times by what was observed of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from libra_plan.models.corrections_file import INSIDE, CorrectionsFile, RoleCorrection
from libra_plan.models.sharing import whole_class
from libra_plan.planner.problem import Role, Sharing, StageOption

__all__ = ["corrected_role", "corrected_sharing"]


def corrected_role(
    role: Role, task: str, profiles: Collection[str], corrections: CorrectionsFile | None
) -> Role:
    """Correct the options of a role that something is known of; each says so in its notes.

    A correction of a profile that the role no longer names says nothing about it.
    """
    known = None if corrections is None else corrections.by_role.get((task, role.id))
    if (
        known is None
        or not known.state.known
        or (known.profile is not None and known.profile not in profiles)
    ):
        return role
    return replace(role, options=tuple(_corrected(option, known) for option in role.options))


def corrected_sharing(sharing: Sharing, corrections: CorrectionsFile | None) -> Sharing:
    """Correct the one engine of tasks that run jointly by the slowest of what was seen of their rollouts.

    Uncorrected, it would look better than the engines it replaces.
    """
    if corrections is None or not sharing.options:
        return sharing
    pairs = zip(sharing.tasks, sharing.rollouts, strict=True)
    seen = [known for pair in pairs if (known := corrections.by_role.get(pair)) and known.state.known]
    if not seen:
        return sharing
    slowest = max(seen, key=lambda known: known.state.factor)
    return replace(sharing, options=tuple(_corrected(option, slowest) for option in sharing.options))


def _corrected(option: StageOption, known: RoleCorrection) -> StageOption:
    if known.gpu_class is not None and whole_class(option.gpu_class) != known.gpu_class:
        return option
    layout = known.layout if all(each == known.layout for each in option.layouts) else option.layout
    time_s = known.corrected(option.time_s, layout)
    if time_s is None:
        return option
    said = [f"corrected {known.words}"]
    if time_s.origin not in INSIDE:
        said.append(f"not seen where times are {time_s.origin.value}: bounds hold no correction for possible")
    return replace(option, time_s=time_s, notes=(*option.notes, *said))
