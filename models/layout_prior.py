"""What a tensor-parallel size that was not measured might cost; only used where a user allows priors.

Speed-up of time per token for each doubling of tp, seen on published H100 and H200 serving rows:
dense 1→2 1.5-1.7, 2→4 1.3-1.6, 4→8 1.1-1.4; mixture of experts 1.1-1.6. Never 2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["MEMORY_MARGIN", "Speedup", "tensor_speedup"]

MEMORY_MARGIN = 1.25
"""Factor on memory at a tp that was not measured: communication buffers, unevenly split layers."""
_DENSE = ((1.5, 1.6, 1.7), (1.3, 1.45, 1.6), (1.1, 1.25, 1.4))
_EXPERTS = (1.1, 1.35, 1.6)
_BEYOND = (1.0, 1.1, 1.25)


class Speedup(NamedTuple):
    """How many times faster: at least, likely, at most."""

    least: float
    likely: float
    greatest: float


def tensor_speedup(measured_tp: int, asked_tp: int, *, experts: bool) -> Speedup:
    """Give the speed of `asked_tp` over `measured_tp`, both powers of two."""
    first, last = sorted((round(math.log2(measured_tp)), round(math.log2(asked_tp))))
    least = likely = greatest = 1.0
    for doubling in range(first, last):
        step = _EXPERTS if experts else _DENSE[doubling] if doubling < len(_DENSE) else _BEYOND
        least, likely, greatest = least * step[0], likely * step[1], greatest * step[2]
    if asked_tp < measured_tp:
        return Speedup(1 / greatest, 1 / likely, 1 / least)
    return Speedup(least, likely, greatest)
