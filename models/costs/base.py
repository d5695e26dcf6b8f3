"""The common part of all cost forms: places in, positive numbers out, and a robust non-negative fit.

A place is one row of three numbers: batch (sequences), length (tokens: context, sequence or
prompt) and output (tokens; 1 where a phase has none).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LARGEST_SIZE",
    "LEAST_SIZE",
    "Array",
    "DecodeCoefficients",
    "FitForm",
    "Flags",
    "FormStruct",
    "Place",
    "Places",
    "huber_weights",
    "places_of",
    "relative_nnls",
]

Array: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

Place: TypeAlias = tuple[float, float, float]
"""Batch, length, output."""

Places: TypeAlias = Array
"""(rows, 3): batch, length, output."""


LEAST_SIZE, LARGEST_SIZE = 1e-6, 1e12
"""Possible batches and lengths; far beyond them products of sizes leave the floating-point range."""


@dataclass(frozen=True, slots=True)
class DecodeCoefficients:
    """A decode step as t(B, context) = fixed_s + per_sequence_s·B + per_token_s·B·context, seconds.

    `error` is the relative error that 90 % of the measured points stay within under this affine
    form; `per_prefill_s` (serve profiles only) is what prompt/output tokens in flight add per B.
    """

    fixed_s: float
    per_sequence_s: float
    per_token_s: float
    error: float
    per_prefill_s: float = 0.0

    def scaled(self, factor: float, error: float) -> DecodeCoefficients:
        """Multiply all coefficients; `error` is that of the result."""
        return DecodeCoefficients(
            self.fixed_s * factor,
            self.per_sequence_s * factor,
            self.per_token_s * factor,
            error,
            self.per_prefill_s * factor,
        )


class FormStruct(msgspec.Struct, frozen=True, tag=True):
    """A cost form with its coefficients; in JSON it is tagged with the name of its class.

    `has_floor`: the host's launches are a floor under the GPU's work.
    """

    has_floor: ClassVar[bool] = False

    def predict(self, at: Places) -> Array:
        """Evaluate at places (rows, 3); returns (rows,)."""
        raise NotImplementedError

    @property
    def constant(self) -> float:
        """The part that neither batch nor length moves; 0 where the form has none."""
        return 0.0

    def affine(self, least_batch: float, largest_batch: float, error: float) -> DecodeCoefficients:
        """Return the decode step as an affine one, exact at the least and the largest batch."""
        raise TypeError(f"{type(self).__name__} is not a decode step")

    def launch_bound(self, at: Places) -> Flags:
        """Whether the host's launches take about as long as the work they hide, by place."""
        return np.zeros(len(at), dtype=bool)

    def host_bounds(self, at: Places) -> tuple[Array, Array]:
        """Return the ln factors, below and above, by which another host's launches may move a step."""
        return np.zeros(len(at)), np.zeros(len(at))

    def slowed(self, at: Places, work_s: float, floor_s: float) -> Array:
        """Return the factor by which more work, and a higher floor, lengthen a step."""
        raise TypeError(f"{type(self).__name__} has no floor under its work")

    def share_without_constant(self, at: Places) -> Array:
        """Return the part of a step that is left without its constant work; 1 where it has none."""
        return np.ones(len(at))


FitForm: TypeAlias = Callable[[Places, Array, Array], Any]
"""Fits a form to (places, measured, weights)."""


def places_of(rows: Sequence[Place]) -> Places:
    """Return places as an array (rows, 3)."""
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
