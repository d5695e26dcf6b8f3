"""Two low-duty roles on one GPU: each has a seat, and the GPU gives its time to one at a time.

Two processes on one H200 time-slice: each keeps 0.45–0.53 of its solo rate, both together 0.91–0.97
of one GPU (ten pairs of training, decoding and scoring, in `switching.yaml`). So a seat makes nothing
faster; it keeps a role that works little from holding a whole GPU. Memory is not shared by time: each
seat has half of it, the processes' own contexts included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.schema import SharedRate

__all__ = ["SEAT", "SEATS", "on_seat", "seat_class", "seat_index", "whole_class"]

SEAT = ".seat"
"""What the class of a seat ends with; seats are a class of their own, as their prices are."""
SEATS = 2
"""Seats of a shared GPU: what was measured."""
_APART = 1000


def seat_class(gpu_class: str) -> str:
    """Name the class of the seats on a GPU."""
    return gpu_class + SEAT


def whole_class(gpu_class: str) -> str:
    """Name the class of the GPU that a seat is on, or the class itself."""
    return gpu_class.removesuffix(SEAT)


def seat_index(device: int, seat: int) -> int:
    """Give the index of a seat among the GPUs of its node: 1007 and 2007 for those of GPU 7."""
    return _APART * seat + device


def on_seat(time_s: Estimate, shared: Sequence[SharedRate]) -> Estimate:
    """Stretch a time measured alone by what two processes leave each other.

    The value counts on a neighbour that always works (median share), `high` on the smallest share
    that was measured, `low` on a neighbour that is idle.
    """
    rates = [rate for pair in shared for rate in (pair.rate_a, pair.rate_b)]
    return replace(
        time_s,
        value=time_s.value / median(rates),
        high=time_s.high / min(rates),
        origin=max(time_s.origin, Origin.EXTRAPOLATED, key=lambda origin: origin.weakness),
    )
