"""What the schemas of all files share: constrained numbers and names, and structs without surprises."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["Count", "File", "Name", "NonNegative", "Positive", "Whole"]

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$(?!\n)", max_length=63)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every part of a file: frozen, and unknown keys are refused."""
