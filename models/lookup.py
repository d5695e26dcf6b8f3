"""Find the profile that answers a question, or the profiles that an unmeasured model is predicted from.

A profile is found by phase, model, precision, recompute and mode. Donors of a prediction are one profile
for every other model of the same phase, GPU class and way to compute.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from libra_plan.errors import RefusedError
from libra_plan.models.memory.states import micro_batches_of
from libra_plan.models.parallelism import Layout
from libra_plan.models.questions import CostQuestion
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.model_shapes import plain_name
from libra_plan.profiles.schema import ProfileFile

__all__ = [
    "Choice",
    "alike",
    "choose_profile",
    "in_set",
    "like_stated",
    "prior_donors",
    "same_stack",
    "same_way",
    "unknown_model",
]

_STATED = ("precision", "recompute", "mode", "framework", "gpu_class")


@dataclass(frozen=True)
class Choice:
    """The profile that answers, and equal ones that could answer as well."""

    profile: LoadedProfile
    passed_over: tuple[str, ...] = ()


def in_set(name: str, prefix: str | None) -> bool:
    """Whether a profile belongs to the set that `prefix` names: `h200` is not `h200b`."""
    return prefix is None or name == prefix or name.startswith(prefix.rstrip("-") + "-")


def choose_profile(profiles: Mapping[str, LoadedProfile], question: CostQuestion) -> Choice | None:
    """Choose among the profiles of the question's model; None when its model has none.

    What the question states must be so; of those left, the ones that leave open what it leaves
    open come first. A part of an accumulated step answers only where nothing measured whole ones.
    Profiles that still differ in what it could have stated are ambiguous, which is
    refused; among equal stacks the first by name answers.
    """
    if question.profile is not None:
        return Choice(_named(profiles, question))
    asked = plain_name(question.model)
    of_model = [
        each
        for _, each in sorted(profiles.items())
        if each.file.phase == question.phase
        and (each.file.model.id == question.model or plain_name(each.file.model.id) == asked)
    ]
    if not of_model:
        return None
    fitting = [each for each in of_model if like_stated(each.file, question)]
    if not fitting:
        raise _no_stack(question, of_model)
    fitting = [each for each in fitting if micro_batches_of(each.file) == 1] or fitting
    best = max(_exactness(each.file, question) for each in fitting)
    exact = [each for each in fitting if _exactness(each.file, question) == best]
    measured = [each for each in exact if _has_layout(each, question)] or exact
    if len({same_stack(each.file) for each in measured}) > 1:
        raise _ambiguous(question, measured)
    return Choice(measured[0], tuple(each.file.id for each in measured[1:]))


def like_stated(file: ProfileFile, question: CostQuestion) -> bool:
    """Whether a profile is what the question states; a profile that does not say may be."""
    return all(
        getattr(question, name) is None or _says(file, name) in (None, getattr(question, name))
        for name in _STATED
    )


def same_stack(file: ProfileFile) -> tuple[object, ...]:
    """Return the properties in which different stacks of a model differ."""
    software = file.software
    return (
        *(_says(file, name) for name in _STATED),
        software.kv_precision,
        software.zero_stage,
        software.lora_rank,
        software.version if file.phase == "serve" else None,
    )


def _says(file: ProfileFile, name: str) -> str | None:
    if name == "gpu_class":
        return file.hardware.gpu_class
    said: str | None = getattr(file.software, name)
    return said


def _exactness(file: ProfileFile, question: CostQuestion) -> int:
    """Count where profile and question say the same, saying nothing included."""
    return sum(_says(file, name) == getattr(question, name) for name in _STATED)


def _has_layout(profile: LoadedProfile, question: CostQuestion) -> bool:
    return any(Layout.of(point) == question.query.layout for point in profile.points)


def _named(profiles: Mapping[str, LoadedProfile], question: CostQuestion) -> LoadedProfile:
    name = question.profile or ""
    if name not in profiles:
        near = difflib.get_close_matches(name, profiles, n=1)
        raise RefusedError(
            "no such profile in the folder",
            got=name,
            allowed=f"{len(profiles)} profiles",
            way_out=f"did you mean `{near[0]}`?" if near else "libra-plan validate lists them",
        )
    if profiles[name].file.phase != question.phase:
        raise RefusedError(
            f"profile {name} is of another phase", got=question.phase, allowed=profiles[name].file.phase
        )
    return profiles[name]


def unknown_model(profiles: Mapping[str, LoadedProfile], question: CostQuestion) -> RefusedError:
    """Refuse a model without a profile of the phase."""
    known = sorted({each.file.model.id for each in profiles.values() if each.file.phase == question.phase})
    near = difflib.get_close_matches(question.model, known, n=1, cutoff=0.85)
    return RefusedError(
        f"no profile of phase {question.phase} for this model",
        got=question.model,
        allowed=", ".join(known) or "none",
        way_out=(f"did you mean `{near[0]}`? else " if near else "") + "measure it, or pass --allow-prior",
    )


def _no_stack(question: CostQuestion, found: Sequence[LoadedProfile]) -> RefusedError:
    stated = [f"{name} {getattr(question, name)}" for name in _STATED if getattr(question, name)]
    return RefusedError(
        f"no profile of {question.model} in phase {question.phase} is of this stack",
        got=", ".join(stated),
        allowed="; ".join(f"{each.file.id}: {_stack_text(each.file)}" for each in found),
        way_out="measure this stack, or ask for one that was measured",
    )


def _ambiguous(question: CostQuestion, found: Sequence[LoadedProfile]) -> RefusedError:
    differing = [name for name in _STATED if len({_says(each.file, name) for each in found}) > 1]
    columns = _telling_apart(question, found) or ["profile"]
    filled = " and ".join(f"{name} ({', '.join(_said_by(found, name))})" for name in columns)
    return RefusedError(
        f"several profiles of {question.model} in phase {question.phase} could answer",
        got=f"no {' or '.join(differing) or 'profile'} stated",
        allowed="; ".join(f"{each.file.id}: {_stack_text(each.file)}" for each in found),
        way_out=f"fill the column {filled}, or name a set with --set",
    )


def _telling_apart(question: CostQuestion, found: Sequence[LoadedProfile]) -> list[str] | None:
    """Find the fewest columns, left open by the question, that leave one stack whatever is filled in."""
    open_ = [name for name in _STATED if getattr(question, name) is None]
    stacks = {same_stack(each.file): each.file for each in found}.values()
    for many in range(1, len(open_) + 1):
        for names in itertools.combinations(open_, many):
            said = {tuple(_says(file, name) for name in names) for file in stacks}
            if len(said) == len(stacks):
                return list(names)
    return None


def _said_by(found: Sequence[LoadedProfile], column: str) -> list[str]:
    said = (each.file.id if column == "profile" else _says(each.file, column) for each in found)
    return list(dict.fromkeys(each for each in said if each is not None))


def _stack_text(file: ProfileFile) -> str:
    said = [str(_says(file, name)) for name in _STATED if _says(file, name) is not None]
    return ", ".join(said) + (f" {file.software.version}" if file.phase == "serve" else "")


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
    """Whether two profiles are of one phase, GPU class and way to compute."""
    return _way(one) == _way(other)


def _one_a_model(profiles: Iterable[LoadedProfile]) -> list[LoadedProfile]:
    chosen: dict[str, LoadedProfile] = {}
    for each in profiles:
        known = chosen.setdefault(each.file.model.id, each)
        if len(each.points) > len(known.points):
            chosen[each.file.model.id] = each
    return list(chosen.values())


def _way(file: ProfileFile) -> tuple[object, ...]:
    """Return the properties that donors must share: what a step does, not how its states are kept.

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
