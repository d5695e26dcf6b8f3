"""How far observed times are from a cost model's: a factor, its error, when it changed, and its file.

The logarithm of observed over predicted is followed by an exponentially weighted mean and variance.
A two-sided CUSUM (Page 1954) of the standardised deviations finds a change: the mean then starts
again from the observations since the change began, so that an old law does not linger. A file carries
the corrections from one run's recordings to the next solve.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from libra_plan.errors import ProfileError, RefusedError, Where
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.document import decode, read_document, shown

__all__ = [
    "ALPHA",
    "CORRECTIONS",
    "INSIDE",
    "Correction",
    "CorrectionsFile",
    "RoleCorrection",
    "read_corrections",
    "with_observation",
]

ALPHA = 0.05
"""Weight of a new observation: the mean covers about the last 2/α − 1 = 39."""
_FARTHEST = math.log(1000.0)
LEAST_WINDOWS = 8
"""Observations before a factor is used or a change is looked for."""
_SLACK, _ALARM = 0.5, 8.0
"""CUSUM in standard deviations: so much is let pass each time, and so much raises the alarm. How soon
it finds a change and how often a false one: benchmarks/telemetry.py."""
_LEAST_SPREAD = 0.01
"""Repeats of one measurement vary by a percent: steadier observations are not taken to be better."""
_Z = 1.645  # 90 %, as all bounds of times


class _Side(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One side of the CUSUM: its sum, and number, Σ and Σ² of the observations since it was 0."""

    cusum: float = 0.0
    number: int = 0
    total: float = 0.0
    squares: float = 0.0


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The correction of one role: `mean` and `variance` of ln(observed ÷ predicted), and their weight.

    `observations` are those since the last change, `changes` how often the law changed. `last` is
    the newest deviation from the mean and `covariance` that of successive ones: observations that
    resemble each other are worth fewer.
    """

    mean: Annotated[float, msgspec.Meta(ge=-_FARTHEST, le=_FARTHEST)] = 0.0
    variance: Annotated[float, msgspec.Meta(ge=0.0, le=4 * _FARTHEST**2)] = 0.0
    observations: Annotated[int, msgspec.Meta(ge=0)] = 0
    changes: Annotated[int, msgspec.Meta(ge=0)] = 0
    last: float = 0.0
    covariance: float = 0.0
    up: _Side = _Side()
    down: _Side = _Side()

    @property
    def known(self) -> bool:
        """Whether there are enough observations to correct anything."""
        return self.observations >= LEAST_WINDOWS

    @property
    def factor(self) -> float:
        """Observed ÷ predicted, 1 while too little is known."""
        return math.exp(self.mean) if self.known else 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the factor that hold 90 % of the time."""
        if not self.known:
            return 1.0, 1.0
        error = _Z * self.spread / math.sqrt(self.effective)
        return math.exp(self.mean - error), math.exp(self.mean + error)

    @property
    def effective(self) -> float:
        """The number of independent observations that the mean is worth, at least 1.

        n (1 − ρ) ÷ (1 + ρ) with ρ the correlation of successive ones (AR(1)), n ≤ 2/α − 1.
        """
        alike = min(max(self.covariance / self.spread**2, 0.0), 0.95)
        return max(min(self.observations, 2 / ALPHA - 1) * (1 - alike) / (1 + alike), 1.0)

    @property
    def spread(self) -> float:
        """The standard deviation of single observations, as a logarithm."""
        return max(math.sqrt(self.variance), _LEAST_SPREAD)


def with_observation(state: Correction, observed_s: float, predicted_s: float) -> Correction:
    """Return the correction after one more observation; both times are above 0, seconds.

    Refuses one that is a thousand times off: there the clock or the place is wrong, not the model.
    """
    value = math.log(observed_s) - math.log(predicted_s)
    if not abs(value) <= _FARTHEST:
        raise RefusedError("observed and predicted are more than a factor of 1000 apart")
    if state.known:
        score = (value - state.mean) / state.spread
        up, down = _sided(state.up, score, value), _sided(state.down, -score, value)
        for side in (up, down):
            if side.cusum > _ALARM:
                return _restarted(side, state.changes + 1)
    else:
        up = down = _Side()
    number = state.observations + 1
    weight = max(ALPHA, 1.0 / number)  # a plain mean until the weights are those of the long run
    shift = value - state.mean
    return Correction(
        state.mean + weight * shift,
        (1 - weight) * (state.variance + weight * shift * shift),
        number,
        state.changes,
        shift,
        state.covariance + weight * (shift * state.last - state.covariance),
        up,
        down,
    )


def _sided(side: _Side, score: float, value: float) -> _Side:
    """Update one side; a sum that falls to 0 starts again."""
    cusum = side.cusum + score - _SLACK
    if cusum <= 0:
        return _Side()
    return _Side(cusum, side.number + 1, side.total + value, side.squares + value * value)


def _restarted(side: _Side, changes: int) -> Correction:
    """Restart from the observations since the change began."""
    mean = side.total / side.number
    variance = max(side.squares / side.number - mean * mean, 0.0)
    return Correction(mean, variance, side.number, changes)


CORRECTIONS = "corrections.json"
INSIDE = (Origin.MEASURED, Origin.INTERPOLATED)
"""Origins whose times are compared with observations: elsewhere the model's own error would count, too."""


class RoleCorrection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The observed correction of one role of a task, and the state to continue from.

    `basis`: `step`, steps of known batch and length against the profile; `stage`, whole stages
    against the plan. `until_s` is the end of the last window taken in, seconds since 1970.
    """

    task: str
    role: str
    basis: Literal["step", "stage"]
    profile: str | None = None
    gpu_class: str | None = None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    until_s: float = 0.0
    state: Correction = Correction()

    @property
    def layout(self) -> Layout:
        """The layout it was observed in."""
        return Layout.of(self)

    @property
    def words(self) -> str:
        """The factor with its bounds and the number of observations, in words."""
        low, high = self.state.bounds
        return (
            f"× {self.state.factor:.3f} ({low:.3f} – {high:.3f}) as observed"
            f" over {self.state.observations} windows"
        )

    def corrected(self, time_s: Estimate, layout: Layout) -> Estimate | None:
        """Multiply a stage time; None while too little is known.

        Another layout than the observed one, and a time that is extrapolated or assumed, get the same
        factor, with bounds that also include no correction at all: uncorrected, they would look better
        than the observed layout and be chosen for that.
        """
        if not self.state.known:
            return None
        low, high = self.state.bounds
        if layout != self.layout or time_s.origin not in INSIDE:
            low, high = min(low, 1.0), max(high, 1.0)
        return replace(
            time_s, value=time_s.value * self.state.factor, low=time_s.low * low, high=time_s.high * high
        )


class CorrectionsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Corrections by task and role."""

    schema_version: Literal[1]
    corrections: tuple[RoleCorrection, ...]

    @cached_property
    def by_role(self) -> dict[tuple[str, str], RoleCorrection]:
        """Map them by task and role."""
        return {(each.task, each.role): each for each in self.corrections}


def read_corrections(path: Path) -> tuple[CorrectionsFile, str]:
    """Read a corrections file; return it with its SHA-256."""
    document = read_document(path, ProfileError)
    file = decode(document, CorrectionsFile, ProfileError)
    if len(file.by_role) < len(file.corrections):
        raise ProfileError("a role is corrected twice", where=Where(shown(path)))
    return file, document.sha256
