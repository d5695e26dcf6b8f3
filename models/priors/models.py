"""Predict a model that was not measured from others of its phase, GPU and framework.

Each coefficient of a fitted form is carried over by the dimension of the transformer it grows with
(launches with layers, matrix multiplications with the parameters that multiply, what is done element
by element with its bytes, attention with layers × heads × head size, logits with the vocabulary),
fitted over the donors. What the data sheet allows at best is taken off before and added after, so
that a mix of dimensions cannot promise more than the GPU can do; no answer, nor its low bound, lies
below that either. Used only where the user allows priors; every answer is marked as assumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import (
    DecodeCoefficients,
    FormStruct,
    Place,
    Places,
    places_of,
    relative_nnls,
)
from libra_plan.models.costs.decode import DecodeForm
from libra_plan.models.costs.memory import CacheForm, ChunkForm
from libra_plan.models.costs.passes import SoftFloorForm
from libra_plan.models.curves.curve import MARGIN, AnyForm, Curve, CurveSample
from libra_plan.models.curves.layouts import LayoutFit
from libra_plan.models.memory.states import kv_mib_per_token, weights_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.priors.roofline import multiplying_params, passes_of, roofline_s
from libra_plan.models.priors.training_peak import TrainingPeak, carry_training_peak
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.hardware import bytes_per_weight, gpu_limits
from libra_plan.profiles.schema import ModelShape, ProfileFile
from libra_plan.profiles.units import MIB

__all__ = ["TIME_ERROR", "Donor", "PhysicsPrior", "prior_for"]

_LEAST_DONORS = 2
TIME_ERROR = 2 * MARGIN
_MEMORY_ERROR = 2 * MARGIN
_ONE = Layout()


class Donor(Protocol):
    """A fitted profile that others may be predicted from."""

    @property
    def profile(self) -> ProfileFile:
        """The measured profile."""

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
    memory: AnyForm | TrainingPeak | None
    donors: tuple[str, ...]
    largest: Place
    time_scale: float = 1.0
    memory_scale: float = 1.0

    @property
    def coefficients(self) -> DecodeCoefficients:
        """The affine decode step on one GPU."""
        step = self.time.affine(1.0, self.largest[0], 0.0)
        return step.scaled(self.time_scale, math.expm1(TIME_ERROR))

    def times_s(self, places: Places) -> list[Estimate]:
        """Predict the seconds of one step at places (rows, 3).

        Never below what the GPU's data sheet allows: an answer raised to it names the sheet in `rows`.
        """
        guesses = self._guesses(self.time, places, "s", TIME_ERROR, self.time_scale)
        least = roofline_s(self.profile, places)
        if least is None:
            return guesses
        return [
            _raised(guess, floor, self.floor_note)
            for guess, floor in zip(guesses, least.tolist(), strict=True)
        ]

    @property
    def floor_note(self) -> str:
        """Name the floor that a guess was raised to."""
        gpu_class = self.profile.hardware.gpu_class
        limits = gpu_limits(gpu_class)
        return "no floor" if limits is None else f"least seconds of {gpu_class} ({limits.source})"

    def memories_mib(self, places: Places) -> list[Estimate]:
        """Predict the peak MiB per GPU at many places (rows, 3)."""
        if self.memory is None:
            raise RefusedError(
                f"{self.profile.id}: no donor measured memory",
                got=", ".join(self.donors),
                way_out="measure memory with `libra-plan profile measure`",
            )
        return self._guesses(self.memory, places, "MiB", _MEMORY_ERROR, self.memory_scale)

    def _guesses(
        self, form: AnyForm | TrainingPeak, places: Places, unit: str, error: float, scale: float
    ) -> list[Estimate]:
        values = form.predict(places) * scale
        beyond = np.maximum(np.log2(places / np.array(self.largest)), 0.0).sum(axis=1)
        factors = np.exp(error + MARGIN * beyond)
        columns = (values.tolist(), (values / factors).tolist(), (values * factors).tolist())
        return [
            Estimate(value, low, high, unit, Origin.ASSUMED, self.donors)
            for value, low, high in zip(*columns, strict=True)
        ]


def _raised(guess: Estimate, least: float, note: str) -> Estimate:
    if guess.low >= least:
        return guess
    value = max(guess.value, least)
    rows = guess.rows if guess.value >= least else (*guess.rows, note)
    return Estimate(value, least, max(guess.high, value), guess.unit, guess.origin, rows)


def prior_for(
    file: ProfileFile,
    donors: Sequence[Donor],
    times: Sequence[CurveSample] = (),
    memories: Sequence[CurveSample] = (),
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
    time: AnyForm = _carried_form(file, sources)
    memory = _carried_memory(file, known)
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


def _scale(form: AnyForm | TrainingPeak, samples: Sequence[CurveSample]) -> float:
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
        "multiplied": multiplying_params(model),
        "elementwise": _elementwise_bytes(model),
        "width": float(model.layers * model.hidden),
        "attention": float(model.layers * model.heads * model.head_dim),
        "cache": float(model.layers * model.kv_heads * model.head_dim),
        "hidden": float(model.hidden),
        "vocab": float(model.vocab),
        "logits": float(model.vocab * model.hidden),
    }


def _elementwise_bytes(model: ModelShape) -> float:
    """Estimate the bytes that one token moves through HBM beside matrix multiplications.

    A layer: two norms computed in fp32 (36 bytes an element each), residuals (6 each), rotary
    embedding and copies, about 110 per hidden element; SiLU and product, 10 per feed-forward element.
    Logits: written, widened and summed up, 14 per word. Only their ratios count.
    """
    layer = 110.0 * model.hidden + 10.0 * model.ffn
    return model.layers * layer + 14.0 * model.vocab


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


def _weights_read_s(file: ProfileFile) -> float:
    """Return the seconds to read the weights once."""
    return _read_s(file, bytes_per_weight(file.software.precision) * multiplying_params(file.model))


def _cache_read_s(file: ProfileFile) -> float:
    """Return the seconds to read the keys and values of one token of context once."""
    return _read_s(file, kv_mib_per_token(file.model, file.software, _ONE) * MIB)


def _read_s(file: ProfileFile, size_bytes: float) -> float:
    gpu = gpu_limits(file.hardware.gpu_class)
    return 0.0 if gpu is None else size_bytes / gpu.bandwidth_bytes_per_s


def _token_s(file: ProfileFile) -> float:
    """Return the seconds of one token's matrix multiplications at the data sheet's rate."""
    gpu = gpu_limits(file.hardware.gpu_class)
    operations = 2.0 * multiplying_params(file.model) * passes_of(file)
    return 0.0 if gpu is None else operations / gpu.bf16_per_s


def _states_mib(file: ProfileFile) -> float:
    return weights_mib(file.model, file.software, _ONE)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a coefficient is carried over: by dimensions `by`; without any it is the donors' median.

    `least` (what the data sheet allows, or states) is taken off before and added after. With `largest`
    the coefficient is its largest share of the one dimension: where states dwarf the logits the fit
    cannot see them, and its coefficient is near zero.
    """

    by: tuple[str, ...] = ()
    least: Callable[[ProfileFile], float] | None = None
    largest: bool = False

    def carried(self, file: ProfileFile, donors: Sequence[ProfileFile], numbers: Sequence[float]) -> float:
        """Return the coefficient for a model from those of the donors."""
        if not self.by:
            return float(np.median(numbers))
        if self.largest:
            (name,) = self.by
            shares = [number / _drivers(donor)[name] for donor, number in zip(donors, numbers, strict=True)]
            return max(shares) * _drivers(file)[name]
        if self.least is None:
            return _carry(file, donors, numbers, self.by)
        least = self.least
        above = [max(number - least(donor), 0.0) for donor, number in zip(donors, numbers, strict=True)]
        return least(file) + _carry(file, donors, above, self.by)


_BESIDE_STATES = _Rule(("one", "logits"), _states_mib)
_RULES: dict[type[FormStruct], dict[str, _Rule]] = {
    DecodeForm: {
        "fixed_s": _Rule(("layers", "multiplied"), _weights_read_s),
        "per_root_sequence_s": _Rule(("layers", "width")),
        "per_sequence_s": _Rule(("width",)),
        "per_token_s": _Rule(("attention", "cache"), _cache_read_s),
    },
    SoftFloorForm: {
        "floor_s": _Rule(("layers",)),
        "fixed_s": _Rule(("layers", "multiplied")),
        "per_token_s": _Rule(("multiplied", "elementwise"), _token_s),
        "per_token_pair_s": _Rule(("attention",)),
        "sharpness": _Rule(),
    },
    CacheForm: {
        "fixed_mib": _BESIDE_STATES,
        "per_sequence_mib": _Rule(("vocab",)),
        "per_token_mib": _Rule(("cache",)),
    },
    ChunkForm: {
        "standing_mib": _BESIDE_STATES,
        "fixed_mib": _BESIDE_STATES,
        "per_chunk_token_mib": _Rule(("vocab",), largest=True),
        "per_token_mib": _Rule(("width",)),
        "chunk_tokens": _Rule(),
    },
}


def _carried_form(file: ProfileFile, sources: Sequence[tuple[ProfileFile, Curve]]) -> Any:
    """Return the form of a model, each coefficient carried over from those of the donors."""
    kind = type(sources[0][1].form)
    if kind not in _RULES or any(type(curve.form) is not kind for _, curve in sources):
        raise RefusedError(
            f"{file.id}: no physical prior for phase {file.phase}",
            allowed="decode, score and train",
            way_out="measure this model",
        )
    donors = [profile for profile, _ in sources]
    return kind(
        *(
            rule.carried(file, donors, [getattr(curve.form, name) for _, curve in sources])
            for name, rule in _RULES[kind].items()
        )
    )


def _carried_memory(
    file: ProfileFile, sources: Sequence[tuple[ProfileFile, Curve]]
) -> AnyForm | TrainingPeak | None:
    if len(sources) < _LEAST_DONORS:
        return None
    if file.phase == "train":
        return carry_training_peak(file, [(profile, curve.samples) for profile, curve in sources])
    form: AnyForm = _carried_form(file, sources)
    return form
