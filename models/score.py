"""Seconds of one forward pass (reference, reward, critic, prefill): the soft floor over work with a constant.

The constant holds weight reads and the last, unhidden launches.
"""

from __future__ import annotations

from libra_plan.models.forms import Places
from libra_plan.models.nnls import Array
from libra_plan.models.soft_floor import SoftFloorForm, fit_soft_floor

__all__ = ["fit_score"]


def fit_score(at: Places, measured: Array, weights: Array) -> SoftFloorForm:
    """Fit floor, constant, seconds per token and seconds per token pair."""
    return fit_soft_floor(at, measured, weights)
