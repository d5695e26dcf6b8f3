"""What every fitted form has in common: places in, positive numbers out, and it can be stored.

A place is one row of three numbers: batch (sequences), length (tokens: context, sequence or
prompt) and output (tokens; 1 where a phase has none).

Fit non-negative coefficients to times or memory by relative error, robustly against bad rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "CostForm",
    "FitForm",
    "FormStruct",
    "Place",
    "Places",
    "huber_weights",
    "places_of",
    "relative_nnls",
]

Array: TypeAlias = NDArray[np.float64]

Place: TypeAlias = tuple[float, float, float]
"""Batch, length, output."""

Places: TypeAlias = Array
"""(rows, 3): batch, length, output."""


class CostForm(Protocol):
    """A physical form with its coefficients."""

    def predict(self, at: Places) -> Array:
        """Evaluate at places (rows, 3); gives (rows,)."""


FitForm: TypeAlias = Callable[[Places, Array, Array], Any]
"""Fit a form to (places, measured, weights)."""


class FormStruct(msgspec.Struct, frozen=True, tag=True):
    """Base of the stored forms: frozen, comparable, tagged with the class name in JSON."""


def places_of(rows: Sequence[Place]) -> Places:
    """Make the (rows, 3) array of places."""
    return np.asarray(rows, dtype=np.float64).reshape(-1, 3)


_HUBER = 1.345
"""Huber's constant, in scaled median absolute deviations: 95 % efficient on Gaussian errors."""
_NOISE = 0.005
"""Relative residuals near repeat noise (0.2 to 1 %) are never treated as outliers."""


def huber_weights(residuals: Array) -> Array:
    """Weigh relative residuals: 1 up to 1.345 scaled median deviations, falling as 1/|r| beyond."""
    size = np.abs(residuals)
    cut = _HUBER * max(1.4826 * float(np.median(size)), _NOISE)
    weights: Array = cut / np.maximum(size, cut)
    return weights


def relative_nnls(terms: Array, measured: Array, weights: Array | None = None, *, rounds: int = 8) -> Array:
    """Solve `terms @ x ≈ measured` with x ≥ 0, minimising the Huber loss of the relative error.

    `terms` is (rows, coefficients), `measured` and `weights` are (rows,), `measured` positive. Rows
    are divided by what was measured, so a millisecond step counts as much as a second's; iteratively
    re-weighted least squares then damp rows that do not belong.
    """
    from scipy.optimize import nnls  # 0.35 s to import; only fitting needs it

    scaled = terms / measured[:, None]
    size = np.linalg.norm(scaled, axis=0)
    size = np.where(size > 0, size, 1.0)
    scaled = scaled / size
    given = np.ones(len(measured)) if weights is None else weights
    weight = given
    solution = np.zeros(terms.shape[1])
    for _ in range(rounds):
        root = np.sqrt(weight)
        solution, _ = nnls(scaled * root[:, None], root)
        updated = given * huber_weights(scaled @ solution - 1.0)
        if np.allclose(updated, weight, atol=1e-6):
            break
        weight = updated
    result: Array = solution / size
    return result
