"""Seconds of one pass over a batch: a launch-bound floor under work that grows with tokens.

    t(B, S) = (f^q + (g + a·N + c·N·S)^q)^(1/q),   N = B·S

f: the host's launches, which hide the GPU's work until it outlasts them. g: work that does not grow
with tokens (weights, optimizer). a: matrix multiplications. c: attention. q in [2, 8] says how
sharply one takes over from the other.

Seconds of one forward pass (reference, reward, critic, prefill): the soft floor over work with a constant.

The constant holds weight reads and the last, unhidden launches.

Seconds of one optimizer step: the soft floor with a constant for the optimizer.

Above the floor, seconds per token grow linearly with the sequence: (t − g)/N = a + c·S.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from libra_plan.models.costs.base import Array, FormStruct, Places, relative_nnls

__all__ = ["SoftFloorForm", "fit_score", "fit_soft_floor", "fit_train"]

_SHARPNESS = (2.0, 3.0, 4.0, 6.0, 8.0)
_COARSE, _FINE = 14, 9
"""Floors tried over the whole range, then around the best one."""
_LEAST_SHARE = 0.05
"""Rows whose work is under 5 % of what was measured say nothing about the work."""
_LEAST_ROWS = 8
"""Fewer rows cannot tell a floor and a constant from work: then only seconds per token, a + c·S."""
_NOISE = 0.01
"""Huber's cut, relative, when candidates are compared."""


class SoftFloorForm(FormStruct, frozen=True, tag=True):
    """A forward pass or an optimizer step, seconds."""

    floor_s: float
    fixed_s: float
    per_token_s: float
    per_token_pair_s: float
    sharpness: float

    def work(self, at: Places) -> Array:
        """Give the seconds of GPU work without the floor."""
        tokens = at[:, 0] * at[:, 1]
        seconds: Array = self.fixed_s + self.per_token_s * tokens + self.per_token_pair_s * tokens * at[:, 1]
        return seconds

    def predict(self, at: Places) -> Array:
        """Evaluate at places (batch, length, –)."""
        return self.over(self.work(at), 0.0)

    def over(self, work: Array, more_floor_s: float) -> Array:
        """Join work with the floor, raised by `more_floor_s`, at this form's sharpness."""
        floor = self.floor_s + more_floor_s
        high = np.maximum(work, floor)  # factored out, so that no power underflows
        ratio = np.minimum(work, floor) / high
        seconds: Array = high * (1.0 + ratio**self.sharpness) ** (1.0 / self.sharpness)
        return seconds


@dataclass(frozen=True, slots=True)
class _Rows:
    terms: Array
    measured: Array
    weights: Array


def fit_soft_floor(at: Places, measured: Array, weights: Array) -> SoftFloorForm:
    """Fit floor, work and sharpness; from fewer than eight rows only the work that tokens grow.

    Floor and sharpness come from a grid, the rest from a non-negative fit for each candidate.
    """
    tokens = at[:, 0] * at[:, 1]
    if len(at) < _LEAST_ROWS:
        terms = np.stack([tokens, tokens * at[:, 1]], axis=1)
        per_token, per_pair = map(float, relative_nnls(terms, measured, weights))
        return SoftFloorForm(0.0, 0.0, per_token, per_pair, _SHARPNESS[-1])
    rows = _Rows(np.stack([np.ones_like(tokens), tokens, tokens * at[:, 1]], axis=1), measured, weights)
    coarse = np.geomspace(measured.min() * 0.5, float(np.median(measured)), _COARSE)
    step = coarse[1] / coarse[0]
    best = _best(rows, at, [_with_floor(rows, 0.0, _SHARPNESS[-1]), *_candidates(rows, coarse)])
    if best.floor_s == 0:
        return best
    fine = np.geomspace(best.floor_s / step, best.floor_s * step, _FINE)
    return _best(rows, at, [best, *_candidates(rows, fine)])


def _candidates(rows: _Rows, floors: Array) -> list[SoftFloorForm]:
    return [_with_floor(rows, float(floor), q) for floor in floors for q in _SHARPNESS]


def _best(rows: _Rows, at: Places, forms: list[SoftFloorForm]) -> SoftFloorForm:
    losses = [_loss(form.predict(at), rows) for form in forms]
    return forms[int(np.argmin(losses))]


def _with_floor(rows: _Rows, floor: float, sharpness: float) -> SoftFloorForm:
    least = (_LEAST_SHARE * rows.measured) ** sharpness
    work = np.maximum(rows.measured**sharpness - floor**sharpness, least) ** (1.0 / sharpness)
    # d ln t / d ln work = (work/t)^q: a row counts by how much of its time the work explains.
    share = (work / rows.measured) ** sharpness
    numbers = relative_nnls(rows.terms, work, rows.weights * share**2, rounds=3)
    fixed, per_token, per_pair = map(float, numbers)
    return SoftFloorForm(float(floor), fixed, per_token, per_pair, sharpness)


def _loss(predicted: Array, rows: _Rows) -> float:
    error = np.abs(np.log(np.maximum(predicted, 1e-12) / rows.measured))
    huber = np.where(error < _NOISE, error**2 / 2, _NOISE * (error - _NOISE / 2))
    return float((rows.weights * huber).sum())


def fit_score(at: Places, measured: Array, weights: Array) -> SoftFloorForm:
    """Fit floor, constant, seconds per token and seconds per token pair."""
    return fit_soft_floor(at, measured, weights)


def fit_train(at: Places, measured: Array, weights: Array) -> SoftFloorForm:
    """Fit floor, optimizer, seconds per token and seconds per token pair."""
    return fit_soft_floor(at, measured, weights)
