"""Corrections on their way into a plan: found, named in the plan's inputs, and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.cli import render
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from libra_plan.models.corrections import CorrectionsFile
    from libra_plan.planner.problem import Problem, StageOption

__all__ = ["Observed", "read_observed"]


@dataclass(frozen=True)
class Observed:
    """A corrections file and its SHA-256."""

    path: Path
    file: CorrectionsFile
    sha256: str

    def noted(self, problem: Problem) -> Problem:
        """Name the file among the plan's inputs, and say what it corrects."""
        from libra_plan.models.corrections import CORRECTIONS

        roles = {(task.id, role.id): role for task in problem.tasks for role in task.roles}
        for key, known in self.file.by_role.items():
            if key not in roles:
                render.note(f"warning: {self.path} corrects {key[0]}/{key[1]}, which the workload has not")
            elif corrected := [o for o in roles[key].options if f"corrected {known.words}" in o.notes]:
                render.note(f"corrected: {key[0]}/{key[1]} {known.words}{_outside(corrected)}")
            else:
                render.note(f"not corrected: {key[0]}/{key[1]}: {_why(known.state.known)}")
        return replace(problem, input_digests={**problem.input_digests, CORRECTIONS: self.sha256})


def _outside(corrected: Sequence[StageOption]) -> str:
    """Say how many of the options lie where the factor was not seen."""
    from libra_plan.models.corrections import INSIDE

    outside = sum(option.time_s.origin not in INSIDE for option in corrected)
    if not outside:
        return ""
    return (
        f"; {outside} of its {counted(len(corrected), 'option')} lie outside what was measured: same factor, "
        "and bounds that hold none of it"
    )


def _why(known: bool) -> str:
    if not known:
        return "too few windows were compared"
    return "none of its options is on that GPU class with that profile"


def read_observed(named: Path | None, out: Path | None) -> Observed | None:
    """Read the corrections named, or those that lie in the plan's folder."""
    from libra_plan.models.corrections import CORRECTIONS, read_corrections

    path = named
    if path is None and out is not None and (out / CORRECTIONS).is_file():
        path = out / CORRECTIONS
    return None if path is None else Observed(path, *read_corrections(path))
