"""Seconds of one optimizer step: the soft floor with a constant for the optimizer.

Above the floor, seconds per token grow linearly with the sequence: (t − g)/N = a + c·S.
"""

from __future__ import annotations

from libra_plan.models.forms import Places
from libra_plan.models.nnls import Array
from libra_plan.models.soft_floor import SoftFloorForm, fit_soft_floor

__all__ = ["fit_train"]


def fit_train(at: Places, measured: Array, weights: Array) -> SoftFloorForm:
    """Fit floor, optimizer, seconds per token and seconds per token pair."""
    return fit_soft_floor(at, measured, weights)
