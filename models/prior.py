"""Predict a model that was not measured from others of its phase, GPU and framework: a stated guess.

Each coefficient of a fitted form is carried over by the dimension of the transformer it grows with
(launches with layers, matrix multiplications with parameters, attention with layers × heads × head
size, logits with the vocabulary), fitted over the donors. Used only where the user allows priors;
every answer is marked as assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.conformal import MARGIN
from libra_plan.models.curve import AnyForm, Curve, Sample
from libra_plan.models.decode import DecodeForm
from libra_plan.models.forms import Place, places_of
from libra_plan.models.layout_fit import LayoutFit
from libra_plan.models.memory import CacheForm, ChunkForm
from libra_plan.models.nnls import relative_nnls
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.soft_floor import SoftFloorForm
from libra_plan.models.states import state_mib, weights_mib
from libra_plan.profiles.schema import ProfileFile

__all__ = ["TIME_ERROR", "Donor", "PhysicsPrior", "prior_for"]

_LEAST_DONORS = 2
TIME_ERROR = 2 * MARGIN
_MEMORY_ERROR = 2 * MARGIN
_ONE = Layout()


class Donor(Protocol):
    """A fitted profile that others may be predicted from."""

    @property
    def profile(self) -> ProfileFile:
        """Give what was measured."""

    @property
    def by_layout(self) -> Mapping[Layout, LayoutFit]:
        """Map fits by layout."""


@dataclass(frozen=True)
class PhysicsPrior:
    """Forms for one model, carried over from donors; answers are assumed, with wide bounds.

    The scales are the median of measured over predicted at the few points the model has (1 without).
    """

    profile: ProfileFile
    time: AnyForm
    memory: AnyForm | None
    donors: tuple[str, ...]
    largest: Place
    time_scale: float = 1.0
    memory_scale: float = 1.0

    def time_s(self, place: Place) -> Estimate:
        """Guess the seconds of one step at (batch, length, output); output is 1 but for serve."""
        return self._guess(self.time, place, "s", TIME_ERROR).scaled(self.time_scale)

    def memory_mib(self, place: Place) -> Estimate:
        """Guess the peak MiB per GPU."""
        if self.memory is None:
            raise RefusedError(
                f"{self.profile.id}: no donor measured memory",
                got=", ".join(self.donors),
                way_out="measure memory with `libra-plan profile measure`",
            )
        return self._guess(self.memory, place, "MiB", _MEMORY_ERROR).scaled(self.memory_scale)

    def _guess(self, form: AnyForm, place: Place, unit: str, error: float) -> Estimate:
        value = float(form.predict(places_of([place]))[0])
        beyond = [
            max(0.0, math.log2(asked / known)) for asked, known in zip(place, self.largest, strict=True)
        ]
        error += MARGIN * sum(beyond)
        low, high = value * math.exp(-error), value * math.exp(error)
        return Estimate(value, low, high, unit, Origin.ASSUMED, self.donors)


def prior_for(
    file: ProfileFile,
    donors: Sequence[Donor],
    times: Sequence[Sample] = (),
    memories: Sequence[Sample] = (),
) -> PhysicsPrior:
    """Build the prior of a profile from donors of its phase and GPU class; refuses without two.

    `times` and `memories` are the few points it has of its own, on one GPU, to scale the prior by.
    """
    usable = [donor for donor in donors if _is_donor(file, donor)]
    if len(usable) < _LEAST_DONORS:
        raise RefusedError(
            f"{file.id}: a prior needs measured models to be drawn from",
            got=f"{len(usable)} with phase {file.phase} on {file.hardware.gpu_class}",
            allowed=f"at least {_LEAST_DONORS}, dense, on one GPU",
            way_out="measure this model, or more others",
        )
    sources = [(donor.profile, curve) for donor in usable if (curve := donor.by_layout[_ONE].time)]
    known = [(donor.profile, curve) for donor in usable if (curve := donor.by_layout[_ONE].memory)]
    time = _carry_time(file, sources)
    memory = _carry_memory(file, known) if len(known) >= _LEAST_DONORS else None
    batch, length, output = (
        max(sample.place[axis] for _, curve in sources for sample in curve.samples) for axis in range(3)
    )
    return PhysicsPrior(
        file,
        time,
        memory,
        tuple(profile.id for profile, _ in sources),
        (batch, length, output),
        _scale(time, times),
        1.0 if memory is None else _scale(memory, memories),
    )


def _scale(form: AnyForm, samples: Sequence[Sample]) -> float:
    if not samples:
        return 1.0
    predicted = form.predict(places_of([sample.place for sample in samples]))
    return float(np.median(np.array([sample.value for sample in samples]) / predicted))


def _is_donor(file: ProfileFile, donor: Donor) -> bool:
    other, fit = donor.profile, donor.by_layout.get(_ONE)
    alike = (other.phase, other.hardware.gpu_class) == (file.phase, file.hardware.gpu_class)
    dense = other.model.experts is None and file.model.experts is None
    return alike and dense and other.id != file.id and fit is not None and fit.time is not None


def _drivers(file: ProfileFile) -> dict[str, float]:
    model = file.model
    return {
        "one": 1.0,
        "layers": float(model.layers),
        "params": float(model.params),
        "width": float(model.layers * model.hidden),
        "attention": float(model.layers * model.heads * model.head_dim),
        "cache": float(model.layers * model.kv_heads * model.head_dim),
        "hidden": float(model.hidden),
        "vocab": float(model.vocab),
        "logits": float(model.vocab * model.hidden),
    }


def _carry(
    file: ProfileFile, sources: Sequence[ProfileFile], numbers: Sequence[float], by: tuple[str, ...]
) -> float:
    """Carry one coefficient over: fit it over the donors as a non-negative mix of dimensions."""
    pairs = [
        (_drivers(source), number) for source, number in zip(sources, numbers, strict=True) if number > 0
    ]
    if not pairs:
        return 0.0
    terms = np.array([[drivers[name] for name in by] for drivers, _ in pairs])
    mix = relative_nnls(terms, np.array([number for _, number in pairs]))
    asked = _drivers(file)
    return float(np.array([asked[name] for name in by]) @ mix) * len(pairs) / len(numbers)


def _carry_largest(
    file: ProfileFile, sources: Sequence[ProfileFile], numbers: Sequence[float], by: str
) -> float:
    """Carry a coefficient over at its largest share of a dimension.

    Where states dwarf the logits the fit cannot see them, and its coefficient is near zero.
    """
    shares = [number / _drivers(source)[by] for source, number in zip(sources, numbers, strict=True)]
    return max(shares) * _drivers(file)[by]


def _carry_time(file: ProfileFile, sources: Sequence[tuple[ProfileFile, Curve]]) -> AnyForm:
    donors = [profile for profile, _ in sources]
    forms = [curve.form for _, curve in sources]
    decode = [form for form in forms if isinstance(form, DecodeForm)]
    passes = [form for form in forms if isinstance(form, SoftFloorForm)]
    if len(decode) == len(forms):
        return DecodeForm(
            _carry(file, donors, [form.fixed_s for form in decode], ("layers", "params")),
            _carry(file, donors, [form.per_root_sequence_s for form in decode], ("layers", "width")),
            _carry(file, donors, [form.per_sequence_s for form in decode], ("width",)),
            _carry(file, donors, [form.per_token_s for form in decode], ("attention", "cache")),
        )
    if len(passes) == len(forms):
        return SoftFloorForm(
            _carry(file, donors, [form.floor_s for form in passes], ("layers",)),
            _carry(file, donors, [form.fixed_s for form in passes], ("layers", "params")),
            _carry(file, donors, [form.per_token_s for form in passes], ("params", "width", "vocab")),
            _carry(file, donors, [form.per_token_pair_s for form in passes], ("attention",)),
            float(np.median([form.sharpness for form in passes])),
        )
    raise RefusedError(
        f"{file.id}: no physical prior for phase {file.phase}",
        allowed="decode, score and train",
        way_out="measure this model",
    )


def _states(profile: ProfileFile) -> float:
    if profile.phase == "train":
        return state_mib(profile.model, profile.software, _ONE, 1)
    return weights_mib(profile.model, profile.software, _ONE)


def _carry_memory(file: ProfileFile, sources: Sequence[tuple[ProfileFile, Curve]]) -> AnyForm:
    donors = [profile for profile, _ in sources]
    forms = [curve.form for _, curve in sources]
    cache = [form for form in forms if isinstance(form, CacheForm)]
    chunk = [form for form in forms if isinstance(form, ChunkForm)]
    states = [_states(profile) for profile in donors]
    if cache:
        beside = [max(form.fixed_mib - held, 0.0) for form, held in zip(cache, states, strict=True)]
        return CacheForm(
            _states(file) + _carry(file, donors, beside, ("one", "logits")),
            _carry(file, donors, [form.per_sequence_mib for form in cache], ("vocab",)),
            _carry(file, donors, [form.per_token_mib for form in cache], ("cache",)),
        )
    beside = [max(form.fixed_mib - held, 0.0) for form, held in zip(chunk, states, strict=True)]
    standing = [max(form.standing_mib - held, 0.0) for form, held in zip(chunk, states, strict=True)]
    return ChunkForm(
        _states(file) + _carry(file, donors, standing, ("one", "logits")),
        _states(file) + _carry(file, donors, beside, ("one", "logits")),
        _carry_largest(file, donors, [form.per_chunk_token_mib for form in chunk], "vocab"),
        _carry(file, donors, [form.per_token_mib for form in chunk], ("width",)),
        float(np.median([form.chunk_tokens for form in chunk])),
    )
