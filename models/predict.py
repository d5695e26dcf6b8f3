"""Answer a table of questions from a folder of profiles, in order, each with its bounds or refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from libra_plan.errors import InputError, LibraError, RefusedError
from libra_plan.models.curves.answers import Answer
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.lookup import (
    Choice,
    alike,
    choose_profile,
    in_set,
    like_stated,
    same_way,
    unknown_model,
)
from libra_plan.models.quantities import Estimate
from libra_plan.models.query import Query
from libra_plan.models.questions import BadQuestion, CostQuestion
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.counting import counted
from libra_plan.profiles.model_shapes import model_shape, plain_name
from libra_plan.profiles.schema import ModelShape, ProfileFile

__all__ = ["CostPrediction", "Predictions", "Refusal", "predict"]


class Refusal(msgspec.Struct, frozen=True):
    """Why there is no answer, and what to do about it."""

    message: str
    way_out: str | None


class CostPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question. What is unknown is None, and a refusal says why.

    `profile` is the one that answered; None where none did.
    `time_s` is one step (decode and serve: one token of the whole batch); `tokens_per_s` counts
    generated tokens (decode, serve) or processed ones (score, train) of one replica. `memory_mib`
    is per GPU, `memory_upper_mib` the bound to plan with, `fits` whether it fits the GPU.
    """

    profile: str | None = None
    time_s: float | None = None
    time_low_s: float | None = None
    time_high_s: float | None = None
    tokens_per_s: float | None = None
    origin: str | None = None
    memory_mib: float | None = None
    memory_low_mib: float | None = None
    memory_upper_mib: float | None = None
    memory_origin: str | None = None
    fits: bool | None = None
    refusal: Refusal | None = None
    memory_refusal: Refusal | None = None


@dataclass(frozen=True)
class Predictions:
    """One prediction per question, and what has to be said about the choice of profiles."""

    rows: tuple[CostPrediction, ...]
    notes: tuple[str, ...]


FitOne = Callable[[LoadedProfile], FittedProfile]


def predict(
    profiles: Mapping[str, LoadedProfile],
    questions: Sequence[CostQuestion | BadQuestion],
    *,
    fit: FitOne,
    set_name: str | None = None,
    allow_prior: bool = False,
) -> Predictions:
    """Answer every question; profiles are taken from the set `set_name` where it is given."""
    able = {name: each for name, each in profiles.items() if in_set(name, set_name)}
    if not able:
        raise InputError(
            "no profile is in this set",
            got=set_name or "an empty folder",
            allowed=", ".join(sorted({name.partition("-")[0] for name in profiles})) or "nothing",
            way_out="a set is named by what its profiles' ids begin with",
        )
    desk = _Desk(able, fit, allow_prior)
    groups: dict[tuple[object, ...], list[tuple[int, CostQuestion]]] = {}
    rows: list[CostPrediction | None] = [None] * len(questions)
    for number, question in enumerate(questions):
        if isinstance(question, BadQuestion):
            rows[number] = _refused(question.reason)
        else:
            groups.setdefault(question.identity, []).append((number, question))
    for group in groups.values():
        answers = desk.answer([question for _, question in group])
        for (number, _), answer in zip(group, answers, strict=True):
            rows[number] = answer
    return Predictions(tuple(row for row in rows if row is not None), tuple(dict.fromkeys(desk.notes)))


class _Desk:
    """Answers groups of questions that one profile answers; keeps fits and notes."""

    def __init__(self, profiles: Mapping[str, LoadedProfile], fit: FitOne, allow_prior: bool) -> None:
        self._profiles, self._fit, self._allow_prior = profiles, fit, allow_prior
        self._fits: dict[str, FittedProfile] = {}
        self.notes: list[str] = []

    def answer(self, questions: Sequence[CostQuestion]) -> list[CostPrediction]:
        """Answer questions of one identity."""
        try:
            fitted = self._answerer(questions[0])
        except (RefusedError, InputError) as refusal:
            return [_refused(refusal)] * len(questions)
        queries = [question.query for question in questions]
        times = fitted.times(queries, allow_prior=self._allow_prior)
        memories = fitted.memories(queries, allow_prior=self._allow_prior)
        self.notes += _assumptions(fitted, queries, times)
        return [
            _prediction(fitted.profile, question, time, memory)
            for question, time, memory in zip(questions, times, memories, strict=True)
        ]

    def _answerer(self, question: CostQuestion) -> FittedProfile:
        choice = choose_profile(self._profiles, question)
        if choice is None:
            if not self._allow_prior:
                raise unknown_model(self._profiles, question)
            return self._never_measured(question)
        self._note(choice)
        fitted = self._fitted(choice.profile)
        if fitted.layouts or not self._allow_prior:
            return fitted
        donors = self._donors(question, choice.profile.file)
        return fit_profile(choice.profile.file, choice.profile.points, donors=donors)

    def _note(self, choice: Choice) -> None:
        if choice.passed_over:
            others = ", ".join(choice.passed_over)
            self.notes.append(
                f"{choice.profile.file.id} answers, the first by name; --set can name another: {others}"
            )

    def _fitted(self, profile: LoadedProfile) -> FittedProfile:
        if profile.file.id not in self._fits:
            self._fits[profile.file.id] = self._fit(profile)
        return self._fits[profile.file.id]

    def _never_measured(self, question: CostQuestion) -> FittedProfile:
        """Carry the models of the same stack over to one that was never measured."""
        candidates = alike(
            each for _, each in sorted(self._profiles.items()) if _computes_alike(each.file, question)
        )
        if not candidates:
            raise unknown_model(self._profiles, question)
        stated = [each for each in candidates if each.file.software.precision == question.precision]
        shape = self._shape(question.model)
        donor = (stated or candidates)[0].file
        software = msgspec.structs.replace(
            donor.software, precision=question.precision or donor.software.precision
        )
        name = f"prior-{plain_name(question.model)}-{question.phase}"
        file = msgspec.structs.replace(donor, id=name, model=shape, software=software)
        donors = self._donors(question, file)
        self.notes.append(
            f"{question.model} was not measured: {question.phase} is carried over from "
            f"{', '.join(each.profile.id for each in donors)}"
        )
        return fit_profile(file, (), donors=donors)

    def _shape(self, model: str) -> ModelShape:
        asked = plain_name(model)
        for _, each in sorted(self._profiles.items()):
            if plain_name(each.file.model.id) == asked:
                return each.file.model
        return model_shape(model)

    def _donors(self, question: CostQuestion, file: ProfileFile) -> list[FittedProfile]:
        """Return one profile for every other model that computes in the same way."""
        others = [
            each
            for _, each in sorted(self._profiles.items())
            if each.file.model.id != file.model.id and _computes_alike(each.file, question)
        ]
        return [self._fitted(each) for each in alike(each for each in others if same_way(each.file, file))]


def _assumptions(fitted: FittedProfile, queries: Sequence[Query], times: Sequence[Answer]) -> Iterator[str]:
    """Yield notes on answers of one layout: penalties they were carried over with, and raised floors."""
    name, layout = fitted.profile.id, queries[0].layout
    answered = [
        (query, time) for query, time in zip(queries, times, strict=True) if isinstance(time, Estimate)
    ]
    if answered and layout not in fitted.layouts:
        yield f"{name}: {fitted.assumption(layout)}"
    known = fitted.measured_ranks(layout)
    ranks = sorted({query.dp for query, _ in answered} - known)
    if fitted.profile.phase == "train" and ranks and ranks[-1] > max(known):
        said = ", ".join(f"dp{each}" for each in ranks if each > max(known))
        yield (
            f"{name}: {said} was not measured; the exchange of gradients over the link is added in full, "
            "so ranks never gain in proportion"
        )
    if fitted.prior is not None:
        raised = sum(fitted.prior.floor_note in time.rows for _, time in answered)
        if raised:
            yield f"{name}: {counted(raised, 'answer')} raised to the {fitted.prior.floor_note}"


def _computes_alike(file: ProfileFile, question: CostQuestion) -> bool:
    """Whether a profile of another model runs as the question does, up to how states are kept."""
    if file.phase != question.phase:
        return False
    anything = msgspec.structs.replace(file.software, precision=question.precision or file.software.precision)
    if not like_stated(msgspec.structs.replace(file, software=anything), question):
        return False
    return question.precision is None or _computing(question.precision) == _computing(file.software.precision)


def _computing(precision: str) -> str:
    """Return the precision of the arithmetic: `fp32-master/bf16` computes in bf16."""
    return precision.rsplit("/", maxsplit=1)[-1]


def _refused(refusal: LibraError) -> CostPrediction:
    said = _said(refusal)
    return CostPrediction(refusal=said, memory_refusal=said)


def _said(refusal: LibraError) -> Refusal:
    return Refusal(refusal.message, refusal.way_out)


def _prediction(file: ProfileFile, question: CostQuestion, time: Answer, memory: Answer) -> CostPrediction:
    seconds = time if isinstance(time, Estimate) else None
    mib = memory if isinstance(memory, Estimate) else None
    return CostPrediction(
        profile=None if seconds is None and mib is None else file.id,
        time_s=None if seconds is None else seconds.value,
        time_low_s=None if seconds is None else seconds.low,
        time_high_s=None if seconds is None else seconds.high,
        tokens_per_s=None if seconds is None else _tokens(question) / seconds.value,
        origin=None if seconds is None else seconds.origin.value,
        memory_mib=None if mib is None else mib.value,
        memory_low_mib=None if mib is None else mib.low,
        memory_upper_mib=None if mib is None else mib.high,
        memory_origin=None if mib is None else mib.origin.value,
        fits=None if mib is None else mib.high <= file.hardware.memory_mib,
        refusal=_said(time) if isinstance(time, RefusedError) else None,
        memory_refusal=_said(memory) if isinstance(memory, RefusedError) else None,
    )


def _tokens(question: CostQuestion) -> float:
    """Count the tokens of one step: one a sequence when generating, all of them in a pass."""
    query = question.query
    if question.phase in ("decode", "serve"):
        return query.batch_sequences
    return query.batch_sequences * (query.seq_len_tokens or 0.0)
