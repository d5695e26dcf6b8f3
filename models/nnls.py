"""Fit non-negative coefficients to times or memory by relative error, robustly against bad rows."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "relative_nnls"]

Array: TypeAlias = NDArray[np.float64]

_HUBER = 1.345
"""Huber's constant, in scaled median absolute deviations: 95 % efficient on Gaussian errors."""
_FLOOR = 0.002
"""Relative residuals below repeat noise (0.2 %) are never treated as outliers."""


def relative_nnls(terms: Array, measured: Array, *, rounds: int = 8) -> Array:
    """Solve `terms @ x ≈ measured` with x ≥ 0, minimising the Huber loss of the relative error.

    `terms` is (rows, coefficients), `measured` (rows,) positive. Rows are divided by what was
    measured, so a millisecond step counts as much as a second's; iteratively re-weighted least
    squares then damp rows that do not belong.
    """
    from scipy.optimize import nnls  # noqa: PLC0415  # 0.35 s to import; only fitting needs it

    scaled = terms / measured[:, None]
    size = np.linalg.norm(scaled, axis=0)
    size = np.where(size > 0, size, 1.0)
    scaled = scaled / size
    target = np.ones(len(measured))
    weight = np.ones(len(measured))
    solution = np.zeros(terms.shape[1])
    for _ in range(rounds):
        root = np.sqrt(weight)
        solution, _ = nnls(scaled * root[:, None], target * root)
        residual = np.abs(scaled @ solution - target)
        cut = _HUBER * max(1.4826 * float(np.median(residual)), _FLOOR)
        updated = np.where(residual <= cut, 1.0, cut / np.maximum(residual, cut))
        if np.allclose(updated, weight, atol=1e-6):
            break
        weight = updated
    result: Array = solution / size
    return result
