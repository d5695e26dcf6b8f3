"""The old way to a priced problem, until the verbs that use it call the public functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.cli import render

if TYPE_CHECKING:
    from libra_plan.cli.observed import Observed
    from libra_plan.planner.inputs.cluster import ClusterFlags
    from libra_plan.planner.inputs.problem import PricedProblem
    from libra_plan.planner.launchers.manifest import Manifest
    from libra_plan.profiles.schema import WorkloadFile

__all__ = ["read_inputs", "read_manifest_at"]


def read_inputs(
    profiles: Path,
    flags: ClusterFlags,
    *,
    policy: str = "throughput",
    parent: Manifest | None = None,
    allow_prior: bool = False,
    seed: int = 0,
    ahead_steps: int | None = None,
    observed: Observed | None = None,
    move_costs: Sequence[Path] = (),
    change: Callable[[WorkloadFile], WorkloadFile] | None = None,
) -> PricedProblem:
    """Load a profiles folder and price its workload on the cluster the flags name."""
    from libra_plan.planner.inputs.problem import PriceSettings, load, read_problem, with_workload

    folder = load(profiles)
    if change is not None and folder.workload is not None:
        folder = with_workload(folder, change(folder.workload))
    return read_problem(
        folder,
        PriceSettings(flags, policy, None, allow_prior, ahead_steps, seed),
        parent=parent,
        corrections=None if observed is None else observed.path,
        switch_costs=move_costs,
        notes=render.note,
    )


def read_manifest_at(path: Path) -> Manifest:
    """Read a manifest file, or the current one of a folder that `solve --out` wrote."""
    from libra_plan.planner.launchers.document import read_manifest
    from libra_plan.planner.launchers.store import CURRENT

    return read_manifest(path / CURRENT if path.is_dir() else path)
