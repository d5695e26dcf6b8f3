"""Bounds that hold as often as they say: ranks of errors made on groups left out of the fit.

Split conformal prediction, by group: k = ⌈(n + 1)·level⌉-th smallest of n errors covers a new group
with probability ≥ level. With too few errors for that rank, the largest one and a margin.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["MARGIN", "upper_quantile"]

MARGIN = math.log(1.15)
"""One octave outside, decode forms err by 15 % at the 90th percentile (public decode timings)."""


def upper_quantile(errors: Sequence[float], level: float, margin: float) -> float:
    """Give the conformal upper bound of ln errors at `level`, plus `margin` when there are too few."""
    ordered = sorted(errors)
    rank = math.ceil((len(ordered) + 1) * level)
    if rank <= len(ordered):
        return max(ordered[rank - 1], 0.0)
    return max([0.0, *ordered]) + margin
