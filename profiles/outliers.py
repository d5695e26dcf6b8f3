"""Find rows that lie far from the rest of their table, by a robust fit of a plain form.

Only at import: what a user measured is judged against its own neighbours once, and what is kept
out is listed. The cost models fit better forms; this one only has to tell 25 % from noise. A row at
a corner of the table bends the fit towards itself, and may pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from libra_plan.profiles.physics import SetAside
from libra_plan.profiles.points import PointRow
from libra_plan.profiles.schema import Phase, Point

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Array = NDArray[float64]

__all__ = ["FAR", "GROSS", "outliers"]

FAR = 0.25
GROSS = 2.0
"""Three times as long as the others say, or a third: no noise, no queue, no other engine setting."""
_ENOUGH = 8
_SPREADS = 5.0  # a table that scatters widely has no outliers, only noise
_ROUNDS = 12
_FLOORS = (0.0, 0.02, 0.1, 0.2, 0.3, 0.4)
"""Shares of the rows that may lie on the floor of a pass, which takes as long as its launches."""


def outliers(rows: Sequence[PointRow], phase: Phase, far: float = FAR) -> tuple[SetAside, ...]:
    """List rows off a robust fit over their layout: by a factor of 1 + `far`, and five robust spreads."""
    groups: dict[tuple[int, ...], list[PointRow]] = {}
    for row in rows:
        p = row.point
        if p.status == "ok" and p.time_s is not None:
            groups.setdefault((p.tp, p.pp, p.cp, p.ep, p.dp), []).append(row)
    return tuple(
        item for group in groups.values() if len(group) >= _ENOUGH for item in _far(group, phase, far)
    )


def _far(group: Sequence[PointRow], phase: Phase, limit: float) -> list[SetAside]:
    import numpy as np

    terms = np.array([_terms(row.point, phase) for row in group])
    times = np.array([row.point.time_s for row in group])
    shares = _FLOORS if phase in ("score", "train") else (0.0,)
    floors = [float(np.quantile(times, share)) if share else 0.0 for share in shares]
    guesses = [np.maximum(_robust(terms, times, floor), floor) for floor in floors]
    logs = np.log(times / np.array(guesses))  # (forms, rows): a row is far when every form says so
    spreads = np.maximum(1.4826 * np.median(np.abs(logs), axis=1), 1e-4)
    best = int(np.argmin(spreads))
    far = np.all(np.abs(logs) > np.log1p(limit), axis=0) & (np.abs(logs[best]) > _SPREADS * spreads[best])
    return [
        SetAside(row, f"{time:.4g} s is {np.expm1(log):+.0%} off what the other rows say, {guess:.4g} s")
        for row, time, guess, log, is_far in zip(group, times, guesses[best], logs[best], far, strict=True)
        if is_far
    ]


def _robust(terms: Array, times: Array, floor: float) -> Array:
    """Fit non-negative factors of the terms by relative error with Huber's weights; predict.

    Rows at the floor say only that the form lies below it there: they are left out.
    """
    import numpy as np
    from scipy.optimize import nnls

    scaled = terms / np.maximum(np.abs(terms).max(axis=0), 1e-300)
    above = times > floor * 1.05
    if above.sum() < _ENOUGH:
        above = np.ones_like(above)
    weights, size = np.ones(len(times)), times
    for _ in range(_ROUNDS):
        share = weights / size
        factors, _ = nnls((scaled * share[:, None])[above], (times * share)[above])
        predicted: Array = np.maximum(scaled @ factors, 1e-9 * times.min())
        logs = np.log(times / np.maximum(predicted, floor))
        size = np.sqrt(predicted * times)  # a row that is far too low must not weigh the more for it
        bound = 1.345 * max(1.4826 * float(np.median(np.abs(logs[above]))), 1e-4)  # Huber's constant
        weights = np.sqrt(np.minimum(1.0, bound / np.maximum(np.abs(logs), 1e-12)))
    return predicted


def _terms(point: Point, phase: Phase) -> tuple[float, ...]:
    """Return the terms of the plain form: decode and serve in batch and context, passes in tokens."""
    batch = float(point.batch_sequences)
    if phase == "serve":
        prompt, output = float(point.prompt_tokens or 0), float(point.output_tokens or 1)
        return 1.0, batch, batch * (prompt + output / 2), batch * prompt / output
    length = float(point.seq_len_tokens or 1)
    return 1.0, batch, batch * length, batch * length * length if phase != "decode" else 0.0
