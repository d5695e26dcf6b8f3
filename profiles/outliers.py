"""Rows that lie far from what the rest of their table says, by a robust fit of a plain form.

Only at import: what a user measured is judged against its own neighbours once, and what is kept
out is listed. The cost models fit better forms; this one only has to tell 25 % from noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from libra_plan.profiles.physics import SetAside
from libra_plan.profiles.points import Row
from libra_plan.profiles.schema import Phase, Point

__all__ = ["FAR", "outliers"]

FAR = 0.25
_ENOUGH = 8
_SPREADS = 5.0  # a table that scatters widely has no outliers, only noise
_ROUNDS = 20


def outliers(rows: Sequence[Row], phase: Phase) -> tuple[SetAside, ...]:
    """List rows more than 25 %, and five robust spreads, off a robust fit over their layout."""
    groups: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        p = row.point
        if p.status == "ok" and p.time_s is not None:
            groups.setdefault((p.tp, p.pp, p.cp, p.ep, p.dp), []).append(row)
    return tuple(item for group in groups.values() if len(group) >= _ENOUGH for item in _far(group, phase))


def _far(group: Sequence[Row], phase: Phase) -> list[SetAside]:
    import numpy as np
    from scipy.optimize import nnls

    terms = np.array([_terms(row.point, phase) for row in group])
    times = np.array([row.point.time_s for row in group])
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-300)
    weights = np.ones(len(times))
    for _ in range(_ROUNDS):
        relative = (terms / scale) * (weights / times)[:, None]
        factors, _ = nnls(relative, weights)
        predicted = np.maximum((terms / scale) @ factors, 1e-300)
        if phase in ("score", "train"):  # small passes take as long as their launches
            predicted = np.maximum(predicted, np.quantile(times, 0.02))
        logs = np.log(times / predicted)
        spread = max(1.4826 * float(np.median(np.abs(logs - np.median(logs)))), 1e-4)
        bound = 1.345 * spread  # Huber's constant
        weights = np.sqrt(np.minimum(1.0, bound / np.maximum(np.abs(logs), 1e-12)))
    limit = max(np.log1p(FAR), _SPREADS * spread)
    return [
        SetAside(row, f"{time:.4g} s is {np.expm1(log):+.0%} off what the other rows say, {guess:.4g} s")
        for row, time, guess, log in zip(group, times, predicted, logs, strict=True)
        if abs(log) > limit
    ]


def _terms(point: Point, phase: Phase) -> tuple[float, ...]:
    """Give the terms of the plain form: decode and serve in batch and context, passes in tokens."""
    batch = float(point.batch_sequences)
    if phase == "serve":
        prompt, output = float(point.prompt_tokens or 0), float(point.output_tokens or 1)
        return 1.0, batch, batch * (prompt + output / 2), batch * prompt / output
    length = float(point.seq_len_tokens or 1)
    return 1.0, batch, batch * length, batch * length * length if phase != "decode" else 0.0
