"""`solve`, `validate` and `explain`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

import libra_plan as lp
from libra_plan.cli import render
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
    with_options,
)
from libra_plan.cli.program import app
from libra_plan.cli.waiting import interruptible
from libra_plan.planner.report.svg import check_svg_name

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
    "Explain for each task which limit binds and what one more GPU would gain.\n\n"
    "Example: libra-plan explain profiles/ --gpus 8"
)


@dataclass(frozen=True)
class _Asked:
    """The flags that `solve` and `explain` have in common."""

    profiles: Profiles
    gpus: Gpus = None
    gpus_per_node: PerNode = 8
    gpu_class: GpuClass = None
    cluster: ClusterPath = None
    local: Local = False
    policy: PolicyOption = PolicyName.THROUGHPUT
    budget: Budget = None
    time_limit: TimeLimit = 10.0
    gap: Gap = 1e-5
    solver: SolverOption = SolverName.CP_SAT
    deterministic: Deterministic = False
    running: Running = None
    allow_prior: AllowPrior = False
    ahead_steps: AheadSteps = None
    seed: Seed = 0

    @property
    def search(self) -> dict[str, Any]:
        """The flags of the search."""
        return {
            "time_limit_s": self.time_limit,
            "gap": self.gap,
            "solver": self.solver.value,
            "deterministic": self.deterministic,
            "seed": self.seed,
        }

    def plan(self, **more: Any) -> lp.Plan:
        """Solve, with further arguments of `libra_plan.solve`."""
        return interruptible(
            lambda interrupter: lp.solve(
                self.profiles,
                gpus=self.gpus,
                gpus_per_node=self.gpus_per_node,
                gpu_class=self.gpu_class,
                cluster=self.cluster,
                local=self.local,
                policy=self.policy.value,
                budget=self.budget,
                running=self.running,
                allow_prior=self.allow_prior,
                ahead_steps=self.ahead_steps,
                interrupter=interrupter,
                notes=render.note,
                **self.search,
                **more,
            )
        )


@app.command("solve", help=_SOLVE)
@with_options(_Asked)
def _solve(
    asked: _Asked,
    out: Annotated[Path | None, typer.Option(help="Folder to write the manifest to.")] = None,
    name: Annotated[str, typer.Option(help="Name of the plan in the manifest.")] = "libra-plan",
    picture: Annotated[
        Path | None, typer.Option(help="File to draw the plan to, one lane a GPU (SVG).")
    ] = None,
    corrections: CorrectionsOption = None,
    switch_costs: SwitchCosts = None,
    form: FormOption = Form.TABLE,
) -> None:
    if picture is not None:
        check_svg_name(picture)
    plan = asked.plan(out=out, name=name, corrections=corrections, switch_costs=switch_costs)
    if form is Form.TABLE:
        render.print_plan(plan)
    else:
        render.print_data(plan.to_manifest(name), form.value)
    if picture is not None:
        plan.draw(picture)
        render.note(f"written: {picture}")


@app.command("explain", help=_EXPLAIN)
@with_options(_Asked)
def _explain(
    asked: _Asked,
    corrections: CorrectionsGiven = None,
    switch_costs: SwitchCostsFrom = None,
    form: FormOption = Form.TABLE,
) -> None:
    plan = asked.plan(corrections=corrections, switch_costs=switch_costs)
    explanation = lp.explain(plan, **asked.search)
    if form is Form.TABLE:
        render.print_text(explanation.summary())
    else:
        render.print_data(explanation.to_dict(), form.value)


@app.command("validate", help=_VALIDATE)
def _validate(
    path: Annotated[Path, typer.Argument(help="Profiles folder, cluster file or manifest.")],
    form: FormOption = Form.TABLE,
) -> None:
    findings = lp.validate(path, notes=render.note)
    if form is Form.TABLE:
        render.print_text("\n".join(findings))
    else:
        render.print_data({"path": str(path), "sound": True, "findings": list(findings)}, form.value)
