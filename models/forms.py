"""What every fitted form has in common: places in, positive numbers out, and it can be stored.

A place is one row of three numbers: batch (sequences), length (tokens: context, sequence or
prompt) and output (tokens; 1 where a phase has none).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np

from libra_plan.models.nnls import Array

__all__ = ["FitForm", "Form", "FormStruct", "Place", "Places", "places_of"]

Place: TypeAlias = tuple[float, float, float]
"""Batch, length, output."""

Places: TypeAlias = Array
"""(rows, 3): batch, length, output."""


class Form(Protocol):
    """A physical form with its coefficients."""

    def predict(self, at: Places) -> Array:
        """Evaluate at places (rows, 3); gives (rows,)."""


FitForm: TypeAlias = Callable[[Places, Array, Array], Any]
"""Fit a form to (places, measured, weights)."""


class FormStruct(msgspec.Struct, frozen=True, tag=True):
    """Base of the stored forms: frozen, comparable, tagged with the class name in JSON."""


def places_of(rows: Sequence[Place]) -> Places:
    """Make the (rows, 3) array of places."""
    return np.asarray(rows, dtype=np.float64).reshape(-1, 3)
