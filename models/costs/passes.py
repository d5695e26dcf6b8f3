"""Seconds of one pass over a batch (score and train): a launch-bound floor under work that grows with tokens.

    t(B, S) = (f^q + (g + a·N + c·N·S)^q)^(1/q),   N = B·S

f: the host's launches, which hide the GPU's work until it outlasts them. g: work that does not grow
with tokens: weight reads and the last, unhidden launches of a forward pass, the optimizer of a training
step. a: matrix multiplications. c: attention. q in [2, 8] says how sharply one takes over from the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from libra_plan.models.costs.base import Array, Flags, FormStruct, Places, relative_nnls

__all__ = ["SoftFloorForm", "fit_soft_floor"]

_SHARPNESS = (2.0, 3.0, 4.0, 6.0, 8.0)
_COARSE, _FINE = 14, 9
"""Floors tried over the whole range, then around the best one."""
_LEAST_SHARE = 0.05
"""Rows whose work is under 5 % of what was measured say nothing about the work."""
_LEAST_ROWS = 8
"""Fewer rows cannot tell a floor and a constant from work: then only seconds per token, a + c·S."""
_NOISE = 0.01
"""Huber's cut, relative, when candidates are compared."""
_BUSY = 1.5
"""Work of one and a half floors keeps the GPU busy."""
_HOST_RANGE = 2.0
"""On two hosts of one kind launches of the same passes took from half to twice the time."""


class SoftFloorForm(FormStruct, frozen=True, tag=True):
    """A forward pass or an optimizer step, seconds."""

    has_floor: ClassVar[bool] = True

    floor_s: float
    fixed_s: float
    per_token_s: float
    per_token_pair_s: float
    sharpness: float

    def work(self, at: Places) -> Array:
        """Return the seconds of GPU work without the floor."""
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

    def launch_bound(self, at: Places) -> Flags:
        """Whether the host's launches take about as long as the work they hide, by place."""
        bound: Flags = self.work(at) < _BUSY * self.floor_s
        return bound

    def host_bounds(self, at: Places) -> tuple[Array, Array]:
        """Return the ln factors by which another host's launches may move a step."""
        if self.floor_s == 0:
            return np.zeros(len(at)), np.zeros(len(at))
        work = self.work(at)
        floors = (self.floor_s / _HOST_RANGE - self.floor_s, 0.0, self.floor_s * _HOST_RANGE - self.floor_s)
        fast, own, slow = (np.log(self.over(work, more)) for more in floors)
        return own - fast, slow - own

    def slowed(self, at: Places, work_s: float, floor_s: float) -> Array:
        """Return the factor by which more work, and a floor raised where there is one, lengthen a step."""
        work = self.work(at)
        return self.over(work + work_s, floor_s if self.floor_s > 0 else 0.0) / self.over(work, 0.0)

    def share_without_constant(self, at: Places) -> Array:
        """Return the part of a step that is left without its constant work."""
        whole = self.work(at)
        return self.over(np.maximum(whole - self.fixed_s, 1e-9), 0.0) / self.over(whole, 0.0)


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
