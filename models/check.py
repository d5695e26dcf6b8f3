"""Check a profile by what it predicts of groups left out: errors, coverage of bounds, worst points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from libra_plan.models.crossval import LayoutErrors, cross_validate
from libra_plan.models.curve import Curve, HeldOut
from libra_plan.models.fit import FittedProfile
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.document import shown

__all__ = ["LeftOut", "ProfileCheck", "check_profile"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A measured point and what the fit said of it when its whole group was left out.

    `where` is file and line; `quantity` is time_s or memory_mib; `error` is predicted over
    measured, less one; `inside`: whether the other groups surround it.
    """

    where: str
    quantity: str
    layout: Layout
    batch: float
    length: float
    left_out: str
    measured: float
    predicted: float
    error: float
    inside: bool


@dataclass(frozen=True)
class ProfileCheck:
    """Errors of every layout, and every point with the worst prediction of it, worst first."""

    profile: str
    phase: str
    points: int
    set_aside: int
    layouts: tuple[LayoutErrors, ...]
    left_out: tuple[LeftOut, ...]


def check_profile(loaded: LoadedProfile, fitted: FittedProfile) -> ProfileCheck:
    """Check one profile against its own points, each predicted without its group."""
    found: dict[tuple[str, str], LeftOut] = {}
    for each in _left_out(loaded, fitted):
        known = found.setdefault((each.where, each.quantity), each)
        if abs(each.error) > abs(known.error):
            found[each.where, each.quantity] = each
    ordered = sorted(found.values(), key=lambda each: -abs(each.error))
    return ProfileCheck(
        loaded.file.id,
        loaded.file.phase,
        len(loaded.points),
        len(loaded.set_aside),
        cross_validate(fitted),
        tuple(ordered),
    )


def _left_out(loaded: LoadedProfile, fitted: FittedProfile) -> Iterator[LeftOut]:
    for fit in fitted.fits:
        for quantity, curve in (("time_s", fit.time), ("memory_mib", fit.memory)):
            for row in curve.held_out if curve is not None else ():
                assert curve is not None
                yield _point(loaded, quantity, fit.layout, curve, row)


def _point(loaded: LoadedProfile, quantity: str, layout: Layout, curve: Curve, row: HeldOut) -> LeftOut:
    sample = curve.samples[row.sample]
    ratio = math.exp(-row.log_error)
    return LeftOut(
        where=_where(loaded, sample.rows),
        quantity=quantity,
        layout=layout,
        batch=sample.batch,
        length=sample.length,
        left_out=f"{row.grouping.value} {row.group}",
        measured=sample.value,
        predicted=sample.value * ratio,
        error=ratio - 1.0,
        inside=row.inside,
    )


def _where(loaded: LoadedProfile, rows: Sequence[str]) -> str:
    """Name file and line of the first row behind a sample; fits number the rows that were kept."""
    number = int(rows[0].rpartition(":")[2]) - 2
    line = loaded.lines[number] if number < len(loaded.lines) else number + 2
    return f"{shown(loaded.path / loaded.file.points)}:{line}"
