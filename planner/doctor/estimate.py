"""Estimate what a new plan would gain, where profiles are available, in place of a bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from libra_plan.errors import InputError
from libra_plan.models.corrections import CORRECTIONS
from libra_plan.models.quantities import Estimate
from libra_plan.notes import Notes, log_note
from libra_plan.planner.doctor.diagnose import Diagnosis
from libra_plan.planner.doctor.finding import Finding, Gain
from libra_plan.planner.inputs.cluster import ClusterFlags
from libra_plan.planner.inputs.price import read_running, switch_cost_files
from libra_plan.planner.inputs.problem import PriceSettings, read_problem
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.incumbent import held_configurations
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem
from libra_plan.planner.solving import search

__all__ = ["PLANNED", "StepChange", "estimate_gains", "step_changes", "with_estimates"]

PLANNED = ("rollout-slow", "training-slow", "gpus-idle", "backlog")
"""Findings that another plan can remedy."""
_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class StepChange:
    """A task's step as it runs and as a new plan has it, both predicted from the same profiles."""

    now_s: Estimate
    then_s: Estimate

    @property
    def factor(self) -> float:
        """The throughput of the new plan over the present one."""
        return self.now_s.value / self.then_s.value


def estimate_gains(
    diagnosis: Diagnosis,
    profiles: str | Path,
    run: str | Path,
    *,
    cluster: str | Path | None = None,
    notes: Notes = log_note,
) -> Diagnosis:
    """Solve again from the plan that ran, and estimate what a new plan would gain.

    Parameters
    ----------
    diagnosis
        What `diagnose` found.
    profiles
        The profiles folder. Corrections that lie beside the manifest count.
    run
        The manifest of the plan that ran, or its folder.
    cluster
        The cluster file of the plan. Default: equal nodes, if the manifest's are such.
    notes
        A function that gets notes. Default: they are logged.

    Returns
    -------
    Diagnosis
        The diagnosis, with estimates in place of the bounds of findings that another plan can mend.

    Raises
    ------
    InputError
        If a file is wrong, or the cluster does not follow from the manifest.
    NoPlanError
        If no plan exists.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run")
    >>> recorded = lp.monitor("simulated:2", for_s=0.0, out="telemetry")
    >>> diagnosis = lp.diagnose(["telemetry"], run="run")
    >>> len(lp.estimate_gains(diagnosis, "profiles", "run").findings) == len(diagnosis.findings)
    True
    """
    if not any(each.code in PLANNED and each.task for each in diagnosis.findings):
        return diagnosis
    manifest = read_running(run)
    assert manifest is not None
    corrections = (Path(run) if Path(run).is_dir() else Path(run).parent) / CORRECTIONS
    if not corrections.is_file():
        notes("the estimate rests on profiles as measured; `profile drift` corrects them by what was seen")
    flags = ClusterFlags(cluster=cluster) if cluster is not None else _equal_nodes(manifest)
    problem = read_problem(
        profiles,
        PriceSettings(flags, manifest.spec.certificate.policy),
        parent=manifest,
        corrections=corrections if corrections.is_file() else None,
        switch_costs=switch_cost_files(None, run),
        notes=notes,
    )
    plan = search(problem, SolveParams(), notes=notes)
    return with_estimates(diagnosis, step_changes(problem, plan))


def _equal_nodes(manifest: Manifest) -> ClusterFlags:
    """Return equal nodes as `--gpus N` makes them, if the manifest's are such."""
    nodes = manifest.spec.nodes
    sizes = Counter(len(node.gpus) for node in nodes)
    classes = {gpu.gpu_class for node in nodes for gpu in node.gpus}
    names = [node.id for node in nodes] == [f"node{number}" for number in range(len(nodes))]
    if len(sizes) != 1 or len(classes) != 1 or not names:
        raise InputError(
            "an estimate needs the cluster that the plan was made for",
            got="a manifest of nodes with names or sizes of their own",
            way_out="name it as cluster (--cluster), or leave profiles (--profiles) out for bounds",
        )
    (size,) = sizes
    return ClusterFlags(gpus=size * len(nodes), gpus_per_node=size, gpu_class=classes.pop())


def step_changes(problem: Problem, plan: Plan) -> dict[str, StepChange]:
    """Compare each task that runs, and may stay as it is, with the plan; others cannot be compared."""
    planned = {running.task: running.configuration.step_time_s for running in plan.running}
    found = {}
    for held in problem.running:
        task = problem.task_of.get(held.task)
        configurations = [] if task is None else held_configurations(problem, task, held)
        if configurations and held.task in planned:
            found[held.task] = StepChange(configurations[0].step_time_s, planned[held.task])
    return found


def with_estimates(diagnosis: Diagnosis, changes: Mapping[str, StepChange]) -> Diagnosis:
    """Replace bounds by estimates; the bounds stay in the text and the figures."""
    return replace(diagnosis, findings=tuple(_estimated(each, changes) for each in diagnosis.findings))


def _estimated(finding: Finding, changes: Mapping[str, StepChange]) -> Finding:
    change = changes.get(finding.task or "")
    if change is None or finding.code not in PLANNED:
        return finding
    now, then = change.now_s, change.then_s
    text = (
        f"× {change.factor:.2f} by a new plan: a step of {_seconds(then)} instead of {_seconds(now)}, both "
        "predicted (an estimate)"
        if abs(change.factor - 1) > _SAME
        else f"no plan on these GPUs is better: a step of {_seconds(now)} is predicted (an estimate)"
    )
    bound = {} if finding.gain.factor is None else {"gain_bound_factor": finding.gain.factor}
    return replace(
        finding,
        gain=Gain("estimate", change.factor, f"{text}; {finding.gain.text}"),
        figures=finding.figures | bound,
    )


def _seconds(step: Estimate) -> str:
    return f"{step.value:.3g} s ({step.low:.3g} – {step.high:.3g})"
