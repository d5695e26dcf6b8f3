"""The file that carries observed corrections from one run's recordings to the next solve."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from libra_plan.errors import ProfileError, Where
from libra_plan.models.correction import Correction
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.document import decode, read_document, shown

__all__ = ["CORRECTIONS", "INSIDE", "CorrectionsFile", "RoleCorrection", "read_corrections"]

CORRECTIONS = "corrections.json"
INSIDE = (Origin.MEASURED, Origin.INTERPOLATED)
"""Where a cost model is compared with what is seen: outside what was measured its own error is in it, too."""


class RoleCorrection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was observed of one role of a task, and the state to go on from.

    `basis`: `step`, steps of known batch and length against the profile; `stage`, whole stages
    against the plan. `until_s` is the end of the last window taken in, seconds since 1970.
    """

    task: str
    role: str
    basis: Literal["step", "stage"]
    profile: str | None = None
    gpu_class: str | None = None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    until_s: float = 0.0
    state: Correction = Correction()

    @property
    def layout(self) -> Layout:
        """Give the layout it was observed in."""
        return Layout(self.tp, self.pp, self.cp, self.ep)

    @property
    def words(self) -> str:
        """Say the factor, its bounds and what it rests on."""
        low, high = self.state.bounds
        return (
            f"× {self.state.factor:.3f} ({low:.3f} – {high:.3f}) as observed"
            f" over {self.state.observations} windows"
        )

    def corrected(self, time_s: Estimate, layout: Layout) -> Estimate | None:
        """Multiply a stage time; None while too little is known.

        Another layout than the observed one, and a time that is extrapolated or assumed, get the same
        factor, and bounds that hold none of it for possible, too: left as they are they would look
        better than what was seen, and be chosen for it.
        """
        if not self.state.known:
            return None
        low, high = self.state.bounds
        if layout != self.layout or time_s.origin not in INSIDE:
            low, high = min(low, 1.0), max(high, 1.0)
        return replace(
            time_s, value=time_s.value * self.state.factor, low=time_s.low * low, high=time_s.high * high
        )


class CorrectionsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Corrections by task and role."""

    schema_version: Literal[1]
    corrections: tuple[RoleCorrection, ...]

    @cached_property
    def by_role(self) -> dict[tuple[str, str], RoleCorrection]:
        """Map them by task and role."""
        return {(each.task, each.role): each for each in self.corrections}


def read_corrections(path: Path) -> tuple[CorrectionsFile, str]:
    """Read a corrections file; give it with its SHA-256."""
    document = read_document(path, ProfileError)
    file = decode(document, CorrectionsFile, ProfileError)
    if len(file.by_role) < len(file.corrections):
        raise ProfileError("a role is corrected twice", where=Where(shown(path)))
    return file, document.sha256
