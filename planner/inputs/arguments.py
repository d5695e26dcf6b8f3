"""Check arguments of the Python functions whose wrong types would fail far from the call."""

from __future__ import annotations

import math
from numbers import Integral, Real

from libra_plan.errors import InputError

__all__ = ["check_count", "check_kind", "check_number"]


def check_count(name: str, value: object, least: int = 1, most: float = math.inf) -> None:
    """Refuse what is no whole number between two limits; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        raise InputError(
            f"{name} is no whole number",
            got=repr(value),
            allowed=f"a whole number ≥ {least}" + (f" and ≤ {most}" if most < math.inf else ""),
            way_out=f"give one, such as {name.split(maxsplit=1)[0]}=8",
        )


def check_number(name: str, value: object, default: float, *, endless: bool = False) -> None:
    """Refuse what is no number of at least 0, and infinity unless `endless`."""
    number = math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    if not number >= 0 or (number == math.inf and not endless):
        raise InputError(
            f"{name} is no number that a search can end by",
            got=repr(value),
            allowed="a number ≥ 0" if endless else "a finite number ≥ 0",
            way_out=f"leave it out for {name}={default:g}",
        )


def check_kind(name: str, value: object, kind: type, way_out: str) -> None:
    """Refuse a value that is not of the kind that the argument needs."""
    if not isinstance(value, kind):
        got = type(value).__name__
        raise InputError(f"{name} is no {kind.__name__}", got=got, allowed=kind.__name__, way_out=way_out)
