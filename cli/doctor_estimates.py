"""Solve again for `doctor --profiles`, from the plan that runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.cli import render
from libra_plan.cli.inputs import read_inputs, read_manifest_at
from libra_plan.cli.observed import read_observed
from libra_plan.errors import InputError
from libra_plan.planner.inputs.cluster import ClusterFlags

if TYPE_CHECKING:
    from libra_plan.planner.doctor import Diagnosis
    from libra_plan.planner.launchers.manifest import Manifest

__all__ = ["estimated"]


def estimated(diagnosis: Diagnosis, profiles: Path, run: Path, cluster: Path | None) -> Diagnosis:
    """Return the diagnosis with what a new plan predicts; corrections that lie by the manifest count."""
    from libra_plan.planner.doctor.estimate import PLANNED, step_changes, with_estimates
    from libra_plan.planner.optimize.base import SolveParams
    from libra_plan.planner.solving import search

    if not any(each.code in PLANNED and each.task for each in diagnosis.findings):
        return diagnosis
    manifest = read_manifest_at(run)
    observed = read_observed(None, run if run.is_dir() else run.parent)
    if observed is None:
        render.note(
            "the estimate rests on profiles as measured; `profile drift` corrects them by what was seen"
        )
    flags = ClusterFlags(cluster=cluster) if cluster is not None else _uniform(manifest)
    policy = manifest.spec.certificate.policy
    inputs = read_inputs(profiles, flags, policy=policy, parent=manifest, observed=observed)
    plan = search(inputs.problem, SolveParams(), notes=render.note)
    return with_estimates(diagnosis, step_changes(inputs.problem, plan))


def _uniform(manifest: Manifest) -> ClusterFlags:
    """Return equal nodes as `--gpus N` makes them, if the manifest's are such."""
    nodes = manifest.spec.nodes
    sizes = Counter(len(node.gpus) for node in nodes)
    classes = {gpu.gpu_class for node in nodes for gpu in node.gpus}
    names = [node.id for node in nodes] == [f"node{number}" for number in range(len(nodes))]
    if len(sizes) != 1 or len(classes) != 1 or not names:
        raise InputError(
            "an estimate needs the cluster that the plan was made for",
            got="a manifest of nodes with names or sizes of their own",
            way_out="name it with --cluster, or leave --profiles out for bounds",
        )
    (size,) = sizes
    return ClusterFlags(gpus=size * len(nodes), gpus_per_node=size, gpu_class=classes.pop())
