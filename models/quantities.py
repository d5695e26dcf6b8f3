"""A number with its unit, its error and its origin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

__all__ = ["Estimate", "Origin", "exactly", "rounded", "total"]

_DIGITS = 12
T = TypeVar("T")


class Origin(str, Enum):
    """How a number was obtained; a sum has the weakest origin of its parts."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"
    ASSUMED = "assumed"

    @property
    def weakness(self) -> int:
        """Rank of the origin: 0 is the most trusted."""
        return list(Origin).index(self)


def weakest(*origins: Origin) -> Origin:
    """Return the least trusted of some origins."""
    return max(origins, key=lambda origin: origin.weakness)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its bounds (`low` ≤ `value` ≤ `high`), unit, origin and the rows behind it."""

    value: float
    low: float
    high: float
    unit: str
    origin: Origin
    rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:  # also refuses NaN
            raise ValueError(f"bounds out of order: {self.low} ≤ {self.value} ≤ {self.high} {self.unit}")

    def scaled(self, factor: float) -> Estimate:
        """Multiply by an exact, non-negative factor without a unit."""
        return Estimate(
            self.value * factor, self.low * factor, self.high * factor, self.unit, self.origin, self.rows
        )

    def plus(self, other: Estimate) -> Estimate:
        """Add a number of the same unit; bounds add too (errors are not assumed independent)."""
        if other.unit != self.unit:
            raise ValueError(f"cannot add {other.unit} to {self.unit}")
        return Estimate(
            self.value + other.value,
            self.low + other.low,
            self.high + other.high,
            self.unit,
            weakest(self.origin, other.origin),
            tuple(dict.fromkeys(self.rows + other.rows)),
        )

    def at_least(self, other: Estimate) -> Estimate:
        """Return the larger of two numbers of one unit, bound by bound."""
        if other.unit != self.unit:
            raise ValueError(f"cannot compare {other.unit} with {self.unit}")
        larger = self if self.value >= other.value else other
        return Estimate(
            larger.value,
            max(self.low, other.low),
            max(self.high, other.high),
            self.unit,
            larger.origin,
            larger.rows,
        )


def exactly(value: float, unit: str, origin: Origin = Origin.ASSUMED) -> Estimate:
    """Return a number without error, as the user stated it."""
    return Estimate(value, value, value, unit, origin)


def total(parts: Iterable[Estimate], unit: str) -> Estimate:
    """Add numbers of one unit; the sum of none is an exact, measured 0."""
    result = Estimate(0.0, 0.0, 0.0, unit, Origin.MEASURED)
    for part in parts:
        result = result.plus(part)
    return result


def rounded(value: T, digits: int = _DIGITS) -> T:
    """Round a number, or every number in a tuple or a dataclass, to so many significant digits.

    The last bits of NumPy's exp, log and matrix products differ between processors. What is decided on
    numbers without these bits is decided alike everywhere.
    """
    known: Any = value
    if isinstance(known, float):
        return type(known)(f"{known:.{digits}g}")  # type: ignore[return-value]
    if isinstance(known, tuple):
        return tuple(rounded(each, digits) for each in known)  # type: ignore[return-value]
    if not is_dataclass(known) or isinstance(known, type):
        return value
    old = {field.name: getattr(known, field.name) for field in fields(known) if field.init}
    new = {name: rounded(each, digits) for name, each in old.items()}
    made: Any = value if new == old else replace(known, **new)
    return made  # type: ignore[no-any-return]
