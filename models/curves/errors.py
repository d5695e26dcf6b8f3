"""How well a profile's fits predict groups they have not seen, and how often their bounds hold.

The errors were made when the profile was fitted, each with the whole group of its point (one batch,
one length or one place) left out. Coverage is judged the same way: the bound of a group is drawn from
the errors of the other groups only.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from libra_plan.models.costs.base import places_of
from libra_plan.models.curves.curve import LEAST_POINTS, Curve, CurveSample, HeldOut, error_bound
from libra_plan.models.curves.layouts import LayoutFit, why_no_curve
from libra_plan.models.fit import FittedProfile
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.document import shown

__all__ = [
    "Errors",
    "LayoutErrors",
    "LeftOut",
    "ProfileCheck",
    "check_profile",
    "cross_validate",
    "errors_of",
    "summarise_errors",
]


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative errors of predictions for groups left out: `covered` is the share within bounds."""

    points: int
    median: float
    p90: float
    largest: float
    covered: float


@dataclass(frozen=True, slots=True)
class LayoutErrors:
    """Errors of one layout; None where nothing was fitted or no group could be left out.

    `no_time` and `no_memory` say why there are none.
    """

    layout: Layout
    time: Errors | None
    memory: Errors | None
    no_time: str | None = None
    no_memory: str | None = None


def cross_validate(
    fitted: FittedProfile, *, keep: Callable[[CurveSample], bool] = lambda sample: True
) -> tuple[LayoutErrors, ...]:
    """Return the errors of every layout, over the samples that `keep` accepts."""
    return tuple(_layout_errors(fit, keep) for fit in fitted.fits)


def _layout_errors(fit: LayoutFit, keep: Callable[[CurveSample], bool]) -> LayoutErrors:
    time = None if fit.time is None else errors_of([fit.time], keep)
    memory = None if fit.memory is None else errors_of([fit.memory], keep, one_sided=True)
    no_group = f"without any of its groups fewer than {LEAST_POINTS} places are left"
    return LayoutErrors(
        fit.layout,
        time,
        memory,
        None if time is not None else why_no_curve(fit, "time") or no_group,
        None if memory is not None else why_no_curve(fit, "memory") or no_group,
    )


def errors_of(
    curves: Sequence[Curve],
    keep: Callable[[CurveSample], bool] = lambda sample: True,
    *,
    one_sided: bool = False,
) -> Errors | None:
    """Summarise the errors of groups left out over curves; memory bounds are one-sided."""
    relative: list[float] = []
    covered: list[bool] = []
    for curve in curves:
        for row in curve.held_out:
            if keep(curve.samples[row.sample]):
                relative.append(abs(math.expm1(-row.log_error)))
                covered.append(_is_covered(curve, row, one_sided))
    return summarise_errors(relative, covered)


def summarise_errors(relative: Sequence[float], covered: Sequence[bool]) -> Errors | None:
    """Summarise relative errors; None when there are none."""
    if not relative:
        return None
    ordered = sorted(relative)
    p90 = ordered[min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)]
    share = sum(covered) / len(covered)
    return Errors(len(ordered), statistics.median(ordered), p90, ordered[-1], share)


def _is_covered(curve: Curve, row: HeldOut, one_sided: bool) -> bool:
    others = [
        other
        for other in curve.held_out
        if (other.grouping, other.group) != (row.grouping, row.group) and other.sample != row.sample
    ]
    if row.inside and curve.form.has_floor and not _launch_bound(curve, row):
        like = [other for other in others if not _launch_bound(curve, other)]
    else:
        like = [other for other in others if other.inside] if row.inside else others
    errors = [other.log_error if one_sided else abs(other.log_error) for other in like or others]
    bound, outside = error_bound(errors, one_sided)
    error = row.log_error if one_sided else abs(row.log_error)
    return error <= bound + (0.0 if row.inside else outside)


def _launch_bound(curve: Curve, row: HeldOut) -> bool:
    return bool(curve.form.launch_bound(places_of([curve.samples[row.sample].place]))[0])


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A measured point, and its prediction when its whole group was left out of the fit.

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
