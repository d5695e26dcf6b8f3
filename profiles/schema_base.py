"""The common part of all file schemas: constrained numbers and names, and strict structs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = [
    "Address",
    "Cores",
    "Count",
    "File",
    "Large",
    "Mass",
    "Mib",
    "Name",
    "NonNegative",
    "Positive",
    "Seconds",
    "Sigma",
    "Steps",
    "Weight",
    "Whole",
]

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$(?!\n)", max_length=63)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Steps = Annotated[int, Meta(ge=0, le=10**6)]

# Far above what there is, and low enough that sums over a cluster stay exact in every solver
Cores = Annotated[float, Meta(ge=0, le=1e6)]
Mib = Annotated[float, Meta(ge=0, le=1e9)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Sigma = Annotated[float, Meta(ge=0, le=4)]
Mass = Annotated[float, Meta(ge=0, le=1e15)]
Weight = Annotated[float, Meta(ge=1e-6, le=1e6)]
Large = Annotated[int, Meta(ge=1, le=2**20)]
Address = Annotated[str, Meta(pattern=r"^[A-Za-z0-9:][A-Za-z0-9.:%_-]*$(?!\n)", max_length=253)]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every part of a file: frozen, and unknown keys are refused."""
