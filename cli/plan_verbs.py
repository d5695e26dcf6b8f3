"""`solve`, `validate` and `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.errors import printable, writing
from libra_plan.cli.flags import (
    AheadSteps,
    AllowPrior,
    Budget,
    ClusterPath,
    CorrectionsGiven,
    CorrectionsOption,
    Deterministic,
    Form,
    FormOption,
    Gap,
    GpuClass,
    Gpus,
    Local,
    PerNode,
    PolicyName,
    PolicyOption,
    Profiles,
    Running,
    Seed,
    SolverName,
    SolverOption,
    SwitchCosts,
    SwitchCostsFrom,
    TimeLimit,
)
from libra_plan.cli.inputs import ClusterFlags, Inputs, read_inputs, read_manifest_at, set_aside_notes
from libra_plan.cli.kept_configurations import MOST_MIB, ColumnsMib, kept_configurations
from libra_plan.cli.move_costs import cost_files
from libra_plan.cli.observed import Observed, read_observed
from libra_plan.cli.remarks import say_of_plan, say_of_workload
from libra_plan.cli.solving import verified_plan
from libra_plan.errors import InputError, ManifestError

if TYPE_CHECKING:
    from libra_plan.planner.launchers.manifest import Manifest
    from libra_plan.planner.optimize.base import SolveParams
    from libra_plan.planner.plan import Plan
    from libra_plan.profiles.schema import WorkloadFile

__all__ = ["register"]


_GAP = 1e-5
_MOST_KEPT_GAP = 1e-3  # a running plan that was stopped further from its bound is looked at anew


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(help=_SOLVE)(solve)
    app.command(help=_VALIDATE)(validate)
    app.command(help=_EXPLAIN)(explain)


_SOLVE = (
    "Plan a workload on a cluster and print the plan, its proof and what waits.\n\n"
    "Example: libra-plan solve profiles/ --gpus 8 --out run/\n\n"
    "With --out the manifest is written to the folder, after an independent check; --format json prints "
    "the manifest itself."
)
_VALIDATE = (
    "Check a profiles folder, a cluster file or a manifest, and say what is wrong where.\n\n"
    "Example: libra-plan validate profiles/"
)
_EXPLAIN = (
    "Say for each task which limit binds and what one more GPU would bring.\n\n"
    "Example: libra-plan explain profiles/ --gpus 8"
)


def solve(
    profiles: Profiles,
    gpus: Gpus = None,
    gpus_per_node: PerNode = 8,
    gpu_class: GpuClass = None,
    cluster: ClusterPath = None,
    local: Local = False,
    policy: PolicyOption = PolicyName.THROUGHPUT,
    budget: Budget = None,
    time_limit: TimeLimit = 10.0,
    gap: Gap = _GAP,
    solver: SolverOption = SolverName.CP_SAT,
    deterministic: Deterministic = False,
    running: Running = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write the manifest to.")] = None,
    name: Annotated[str, typer.Option(help="Name of the plan in the manifest.")] = "libra-plan",
    picture: Annotated[
        Path | None, typer.Option(help="File to draw the plan to, one lane a GPU (SVG).")
    ] = None,
    allow_prior: AllowPrior = False,
    ahead_steps: AheadSteps = None,
    corrections: CorrectionsOption = None,
    seed: Seed = 0,
    switch_costs: SwitchCosts = None,
    columns_mib: ColumnsMib = MOST_MIB,
    form: FormOption = Form.TABLE,
) -> None:
    """Plan, verify, write when asked, and print."""
    from libra_plan.planner.launchers.document import manifest_to_json, manifest_to_yaml

    flags = ClusterFlags(gpus, gpus_per_node, gpu_class, cluster, local)
    _check_picture(picture)
    parent = _parent(running, out)
    observed = read_observed(corrections, out)
    costs = cost_files(switch_costs, running, out)
    inputs = _inputs(profiles, flags, parent, policy, budget, allow_prior, seed, ahead_steps, observed, costs)
    params = _params(time_limit, gap, deterministic, seed, solver)
    with kept_configurations(columns_mib) as columns:
        params = replace(params, kept_gap=_kept_gap(parent, gap), configurations=columns)
        plan = verified_plan(inputs.problem, params)
    say_of_plan(plan, inputs.folder.workload)
    manifest = _settle(inputs, plan, name, out)
    if form is Form.TABLE:
        render.print_plan(inputs.problem, plan)
    else:
        text = manifest_to_json(manifest) if form is Form.JSON else manifest_to_yaml(manifest)
        render.print_text(text.rstrip("\n"))
    if picture is not None:
        _draw(picture, inputs, plan)


def _inputs(
    profiles: Path,
    flags: ClusterFlags,
    parent: Manifest | None,
    policy: PolicyName,
    budget: float | None,
    allow_prior: bool,
    seed: int,
    ahead_steps: int | None,
    observed: Observed | None,
    costs: Sequence[Path],
) -> Inputs:
    """Read and price what is to be planned, and say what was taken for granted."""
    inputs = read_inputs(
        profiles,
        flags,
        policy=policy.value,
        parent=parent,
        allow_prior=allow_prior,
        seed=seed,
        ahead_steps=ahead_steps,
        observed=observed,
        move_costs=costs,
    )
    inputs = replace(inputs, problem=replace(inputs.problem, budget_per_hour=budget))
    _warn(inputs, ahead_steps)
    return inputs


def _parent(running: Path | None, out: Path | None) -> Manifest | None:
    """Plan from the manifest that lies in the output folder, unless another one is named."""
    if running is not None:
        return read_manifest_at(running)
    if out is None:
        return None
    from libra_plan.planner.launchers.store import CURRENT, read_current

    try:
        with writing(out):
            stored = read_current(out)
    except ManifestError as wrong:
        raise ManifestError(
            f"the folder's manifest cannot be planned from: {wrong.what}",
            got=wrong.got,
            allowed=wrong.allowed,
            way_out="move it away to start anew, or name another folder with --out",
            where=wrong.where,
        ) from None
    for line in stored.notes:
        render.note(line)
    if stored.manifest is not None:
        generation = stored.manifest.metadata.generation
        render.note(
            f"planned from {out / CURRENT} (generation {generation}), taken as running; move it away or name "
            "another --out to start anew"
        )
    return stored.manifest


def _settle(inputs: Inputs, plan: Plan, name: str, out: Path | None) -> Manifest:
    """Make the manifest and, with `out`, write it; when it says nothing new the parent stays."""
    from libra_plan.planner.launchers.build import build_manifest, says_the_same
    from libra_plan.planner.launchers.store import CURRENT, write_manifest

    parent = inputs.parent
    manifest = build_manifest(
        inputs.problem,
        plan,
        name=name if parent is None else parent.metadata.name,
        parent=parent,
        workload=inputs.folder.workload,
    )
    if out is None:
        return manifest
    if parent is not None and says_the_same(manifest, parent):
        manifest = parent
    with writing(out):
        before = write_manifest(out, manifest)
    for line in before.notes:
        render.note(line)
    generation = f"generation {manifest.metadata.generation}"
    if before.manifest == manifest:
        render.note(f"unchanged: {out / CURRENT} ({generation})")
    else:
        render.note(f"written: {out / CURRENT} ({generation})")
    return manifest


def _check_picture(picture: Path | None) -> None:
    """Refuse what is no SVG before anything is solved."""
    if picture is not None and picture.suffix.lower() != ".svg":
        raise InputError(
            "--picture draws SVG, and the file says otherwise",
            got=printable(picture),
            allowed="a file that ends in .svg",
            way_out=f"--picture {printable(picture.with_suffix('.svg')) if picture.name else 'plan.svg'}",
        )


def _draw(picture: Path, inputs: Inputs, plan: Plan) -> None:
    from libra_plan.planner.report.plan_picture import plan_svg
    from libra_plan.profiles.durable import write_atomically

    with writing(picture):
        write_atomically(picture, plan_svg(inputs.problem, plan).encode())
    render.note(f"written: {picture}")


def _params(time_limit: float, gap: float, deterministic: bool, seed: int, solver: SolverName) -> SolveParams:
    from libra_plan.planner.optimize.base import Backend, SolveParams

    return SolveParams(
        time_limit_s=time_limit, gap=gap, deterministic=deterministic, seed=seed, solver=Backend(solver.value)
    )


def _kept_gap(parent: Manifest | None, gap: float) -> float:
    """Give the gap at which the running plan stays: the one it was proven to, unless one is asked for."""
    if parent is None or gap != _GAP:
        return 0.0
    return min(parent.spec.certificate.gap, _MOST_KEPT_GAP)


def _warn(inputs: Inputs, ahead_steps: int | None) -> None:
    workload = inputs.folder.workload
    if workload is not None and ahead_steps is not None:
        _say_without_history(workload, ahead_steps)
    say_of_workload(inputs.folder, inputs.problem.policy)
    for line in set_aside_notes(inputs.folder):
        render.note(line)
    if inputs.cluster.name.endswith("-assumed"):
        node = inputs.cluster.nodes[0]
        per_gpu = len(node.gpus)
        render.note(
            f"assumed per GPU: {(node.cpu_cores or 0) / per_gpu:g} CPU cores and "
            f"{(node.host_memory_mib or 0) / per_gpu / 1024:g} GiB of host memory "
            "(give --cluster to state them)"
        )


def _say_without_history(workload: WorkloadFile, ahead_steps: int) -> None:
    """Say which tasks have no history of lengths to forecast from."""
    without = [task.id for task in workload.tasks if not task.work_per_step.history_tokens]
    if len(without) == len(workload.tasks):
        render.note(f"--ahead-steps {ahead_steps} changes nothing: no task states history_tokens")
    elif without:
        render.note(
            f"--ahead-steps {ahead_steps}: lengths as stated, for want of history_tokens, for "
            f"{', '.join(without)}"
        )


def validate(
    path: Annotated[Path, typer.Argument(help="Profiles folder, cluster file or manifest.")],
    form: FormOption = Form.TABLE,
) -> None:
    """Read everything there is to read, and say what it is."""
    from libra_plan.cli.validation import describe

    if form is Form.TABLE:
        for line in describe(path):
            render.print_text(line)
    else:
        render.print_data({"path": str(path), "sound": True, "findings": list(describe(path))}, form.value)


def explain(
    profiles: Profiles,
    gpus: Gpus = None,
    gpus_per_node: PerNode = 8,
    gpu_class: GpuClass = None,
    cluster: ClusterPath = None,
    local: Local = False,
    policy: PolicyOption = PolicyName.THROUGHPUT,
    budget: Budget = None,
    time_limit: TimeLimit = 10.0,
    gap: Gap = _GAP,
    solver: SolverOption = SolverName.CP_SAT,
    deterministic: Deterministic = False,
    running: Running = None,
    allow_prior: AllowPrior = False,
    ahead_steps: AheadSteps = None,
    corrections: CorrectionsGiven = None,
    seed: Seed = 0,
    switch_costs: SwitchCostsFrom = None,
    form: FormOption = Form.TABLE,
) -> None:
    """Solve and explain."""
    from libra_plan.planner.explain import explain as run

    flags = ClusterFlags(gpus, gpus_per_node, gpu_class, cluster, local)
    parent = _parent(running, None)
    observed = read_observed(corrections, None)
    costs = cost_files(switch_costs, running, None)
    inputs = _inputs(profiles, flags, parent, policy, budget, allow_prior, seed, ahead_steps, observed, costs)
    params = _params(time_limit, gap, deterministic, seed, solver)
    plan = verified_plan(inputs.problem, params)
    say_of_plan(plan, inputs.folder.workload)
    explanation = run(inputs.problem, plan, params)
    if form is Form.TABLE:
        render.print_explanation(explanation)
        for queued in plan.queued:
            render.print_text(f"waits [{queued.code}] {queued.reason}")
    else:
        data = {"explanation": render.as_data(explanation), "queued": render.as_data(plan.queued)}
        render.print_data(data, form.value)
