"""Correct a form by what it leaves over at measured places, smoothly, fading away from them.

Kriging of ln(measured / form) with a Matérn-5/2 kernel over log2 places: it passes near the
measured points, as near as their noise allows, and returns to the plain form far from all of them.
"""

from __future__ import annotations

import msgspec
import numpy as np

from libra_plan.models.nnls import Array

__all__ = ["Residual", "fit_residual"]


class Residual(msgspec.Struct, frozen=True):
    """A smooth correction: `places` in log2, one kriging weight each, kernel length in octaves."""

    places: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    length: float

    def log_factor(self, logs: Array) -> Array:
        """Give ln of the factor at log2 places (rows, axes)."""
        if not self.weights:
            return np.zeros(len(logs))
        factor: Array = _kernel(logs, np.asarray(self.places), self.length) @ np.asarray(self.weights)
        return factor


def _kernel(left: Array, right: Array, length: float) -> Array:
    distance = np.sqrt(((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)) * np.sqrt(5.0) / length
    similarity: Array = (1.0 + distance + distance**2 / 3.0) * np.exp(-distance)
    return similarity


def fit_residual(logs: Array, log_errors: Array, weights: Array, length: float, noise: float) -> Residual:
    """Fit the correction; `noise` is the variance of a good row against the kernel's 1.

    A row with weight w < 1 is taken to be noisier by 1/w, so that bad rows do not bend the form.
    """
    nugget = np.diag(noise / np.maximum(weights, 1e-3))
    solved = np.linalg.solve(_kernel(logs, logs, length) + nugget, log_errors)
    return Residual(tuple(tuple(map(float, row)) for row in logs), tuple(map(float, solved)), length)
