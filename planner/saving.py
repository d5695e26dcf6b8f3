"""Save a plan as a manifest, and read the running plan from the folder of a manifest."""

from __future__ import annotations

from pathlib import Path

from libra_plan.errors import ManifestError, writing
from libra_plan.notes import Notes, log_note
from libra_plan.planner.inputs.problem import PricedProblem, workload_of
from libra_plan.planner.launchers.build import build_manifest, says_the_same
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.store import CURRENT, read_current, write_manifest
from libra_plan.planner.plan import Plan

__all__ = ["manifest_of", "plan_in", "save_plan"]


def plan_in(out: Path, notes: Notes) -> Manifest | None:
    """Return the manifest that lies in an output folder, which is taken as running."""
    try:
        with writing(out):
            stored = read_current(out)
    except ManifestError as wrong:
        raise ManifestError(
            f"the folder's manifest cannot be planned from: {wrong.what}",
            got=wrong.got,
            allowed=wrong.allowed,
            way_out="move it away to start anew, or name another folder as out (--out)",
            where=wrong.where,
        ) from None
    for line in stored.notes:
        notes(line)
    if stored.manifest is not None:
        generation = stored.manifest.metadata.generation
        notes(
            f"planned from {out / CURRENT} (generation {generation}), taken as running; move it away "
            "or name another folder as out (--out) to start anew"
        )
    return stored.manifest


def manifest_of(plan: Plan, name: str = "libra-plan") -> Manifest:
    """Return the manifest of a plan; that of the running plan, where this one adds nothing to it."""
    problem = plan.known_problem
    parent = problem.parent if isinstance(problem, PricedProblem) else None
    manifest = build_manifest(
        problem,
        plan,
        name=name if parent is None else parent.metadata.name,
        parent=parent,
        workload=workload_of(problem),
    )
    return parent if parent is not None and says_the_same(manifest, parent) else manifest


def save_plan(plan: Plan, out: Path, *, name: str = "libra-plan", notes: Notes = log_note) -> Manifest:
    """Write the manifest of a plan to a folder, unless the one that lies there says the same."""
    manifest = manifest_of(plan, name)
    with writing(out):
        before = write_manifest(out, manifest)
    for line in before.notes:
        notes(line)
    word = "unchanged" if before.manifest == manifest else "written"
    notes(f"{word}: {out / CURRENT} (generation {manifest.metadata.generation})")
    return manifest
