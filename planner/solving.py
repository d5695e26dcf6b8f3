"""`solve`, `verify` and `explain`: from a workload to a verified plan and its explanation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.errors import InputError, NoPlanError
from libra_plan.models.corrections import CORRECTIONS
from libra_plan.models.priors.ranks import RANKS_BEYOND
from libra_plan.models.topology import Cluster
from libra_plan.notes import Notes, log_note
from libra_plan.planner.inputs.arguments import check_count, check_kind, check_number
from libra_plan.planner.inputs.cluster import ClusterFlags
from libra_plan.planner.inputs.price import priced, read_running, switch_cost_files
from libra_plan.planner.inputs.problem import PricedProblem, PriceSettings, workload_of
from libra_plan.planner.optimize.base import SolveParams, SolverBackend, TerminationReason
from libra_plan.planner.optimize.interrupter import Interrupter
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem
from libra_plan.planner.verify import Verdict, check_plan
from libra_plan.profiles.catalog import ProfilesFolder
from libra_plan.profiles.schema import WorkloadFile

if TYPE_CHECKING:
    from libra_plan.planner.explain import Explanation
    from libra_plan.planner.launchers.manifest import Manifest

__all__ = ["explain", "search", "solve", "verify"]

DEFAULT_GAP = 1e-5
_TAKE_PLAN = "give what `solve` returns"
_MOST_KEPT_GAP = 1e-3  # a running plan whose search ended further from its bound is solved again


def solve(
    source: str | Path | ProfilesFolder | Problem,
    *,
    gpus: int | None = None,
    gpus_per_node: int = 8,
    gpu_class: str | None = None,
    cluster: str | Path | Cluster | None = None,
    local: bool = False,
    policy: str = "throughput",
    budget: float | None = None,
    running: str | Path | Manifest | Plan | None = None,
    allow_prior: bool = False,
    ahead_steps: int | None = None,
    corrections: str | Path | None = None,
    switch_costs: str | Path | None = None,
    seed: int = 0,
    time_limit_s: float = 10.0,
    gap: float = DEFAULT_GAP,
    solver: str = "cp-sat",
    deterministic: bool = False,
    out: str | Path | None = None,
    name: str = "libra-plan",
    interrupter: Interrupter | None = None,
    notes: Notes = log_note,
) -> Plan:
    """Plan a workload on a cluster, and verify the plan.

    Parameters
    ----------
    source
        A profiles folder (its path, the name of a shipped one, or one that `load` returned), or a
        problem that `price` returned.
    gpus, gpus_per_node, gpu_class, cluster, local, policy, budget, running, allow_prior, ahead_steps, \
corrections, switch_costs, seed, notes
        As in `price`, and only for a folder: a problem is priced already. `seed` is the solver's, too.
    time_limit_s
        Seconds to search. The best plan found within them is the answer.
    gap
        Stop at this proven relative gap.
    solver
        `cp-sat`, `highs` or `cbc`.
    deterministic
        Whether the same input must give the same plan bit for bit.
    out
        A folder to write the manifest to. The manifest that lies there is taken as running, unless
        `running` names another one, and corrections and costs of moves are looked for there.
    name
        The name of the plan in the manifest.
    interrupter
        Shows another thread how far the search is, and lets it end the search early.

    Returns
    -------
    Plan
        A plan that the verifier has found sound; `plan.problem` is the problem it solves.

    Raises
    ------
    InputError
        If a file, the cluster or an argument is wrong.
    NoPlanError
        If no plan exists; the message says which limit proves it and what must give way.
    TimeLimitError
        If no plan was found within the time limit.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8)
    >>> plan
    Plan(optimal: 3 tasks on 8 GPUs, 0 waiting, objective 4.350022, bound 4.350022)
    """
    settings = PriceSettings(
        ClusterFlags(gpus, gpus_per_node, gpu_class, cluster, local),
        policy,
        budget,
        allow_prior,
        ahead_steps,
        seed,
    )
    params = _params(time_limit_s, gap, solver, deterministic, seed)
    if isinstance(source, Problem):
        files = {"running": running, "corrections": corrections, "switch_costs": switch_costs}
        _refuse_pricing(settings, files)
        problem = source
    else:
        parent = read_running(running)
        if parent is None and out is not None:
            from libra_plan.planner.saving import plan_in

            parent = plan_in(Path(out), notes)
        kept = None if out is None else Path(out) / CORRECTIONS
        problem = priced(
            source,
            settings,
            parent=parent,
            corrections=kept if corrections is None and kept and kept.is_file() else corrections,
            switch_costs=switch_cost_files(switch_costs, running, out),
            notes=notes,
        )
    plan = search(problem, replace(params, interrupter=interrupter), notes=notes)
    if out is not None:
        from libra_plan.planner.saving import save_plan

        save_plan(plan, Path(out), name=name, notes=notes)
    return plan


def verify(plan: Plan, problem: Problem | None = None) -> Verdict:
    """Check a plan against its problem, with code that shares nothing with the solvers.

    Parameters
    ----------
    plan
        The plan.
    problem
        The problem that it is to solve. Default: the one it was solved for.

    Returns
    -------
    Verdict
        `violations`, every rule that the plan breaks with a code and a sentence (none: the plan is
        sound), and `proof`, what of the bound was recomputed.

    Raises
    ------
    InputError
        If an argument is no plan or no problem, or the plan does not know its problem and none is given.

    Examples
    --------
    >>> import libra_plan as lp
    >>> verdict = lp.verify(lp.solve("profiles", gpus=8))
    >>> verdict.violations, verdict.proof.proven
    ((), True)
    """
    check_kind("plan", plan, Plan, _TAKE_PLAN)
    if problem is not None:
        check_kind("problem", problem, Problem, "give what `price` returns, or leave it out")
    return check_plan(problem or plan.known_problem, plan)


def explain(
    plan: Plan,
    *,
    time_limit_s: float = 10.0,
    gap: float = DEFAULT_GAP,
    solver: str = "cp-sat",
    deterministic: bool = False,
    seed: int = 0,
) -> Explanation:
    """Explain a plan: what binds each task, what one more GPU would bring, what must give way.

    Parameters
    ----------
    plan
        A plan that `solve` returned.
    time_limit_s, gap, solver, deterministic, seed
        As in `solve`, for each of the problems that are solved for the comparison.

    Returns
    -------
    Explanation
        What binds each task, limits with their gains, the next-best plan, and who cannot run.

    Raises
    ------
    InputError
        If `plan` is none or does not know its problem, or an argument is wrong.

    Examples
    --------
    >>> import libra_plan as lp
    >>> explanation = lp.explain(lp.solve("profiles", gpus=8))
    >>> explanation.tasks[0].bottleneck
    'rollout'
    """
    from libra_plan.planner.explain import explain_plan

    check_kind("plan", plan, Plan, _TAKE_PLAN)
    params = _params(time_limit_s, gap, solver, deterministic, seed)
    return explain_plan(plan.known_problem, plan, params)


def _params(time_limit_s: float, gap: float, solver: str, deterministic: bool, seed: int) -> SolveParams:
    """Return the parameters of a search; refuse what no search can use."""
    check_number("time_limit_s", time_limit_s, 10.0, endless=True)
    check_number("gap", gap, DEFAULT_GAP)
    known = [each.value for each in SolverBackend]
    if solver not in known:
        raise InputError("no such solver", got=solver, allowed=", ".join(known))
    check_count("seed", seed, 0, 2**31 - 1)
    return SolveParams(
        time_limit_s=time_limit_s,
        gap=gap,
        deterministic=deterministic,
        seed=int(seed),
        solver=SolverBackend(solver),
    )


def _refuse_pricing(settings: PriceSettings, others: Mapping[str, object]) -> None:
    """Refuse arguments of pricing for a problem that is priced already."""
    usual = PriceSettings()
    given = [
        each.name
        for asked, default in ((settings.flags, usual.flags), (replace(settings, seed=0), usual))
        for each in fields(asked)
        if each.name != "flags" and getattr(asked, each.name) != getattr(default, each.name)
    ]
    given += [name for name, value in others.items() if value is not None]
    if given:
        raise InputError(
            "the problem is priced already",
            got=", ".join(given),
            way_out="give these to `price`, or give `solve` the profiles folder",
        )


def search(problem: Problem, params: SolveParams, *, notes: Notes = log_note) -> Plan:
    """Solve a priced problem, verify the plan, and note what is less certain or cannot be started.

    With the usual gap, a running plan stays as it is up to the gap that it was proven to.
    """
    parent = problem.parent if isinstance(problem, PricedProblem) else None
    if parent is not None and params.gap == DEFAULT_GAP:
        params = replace(params, kept_gap=min(parent.spec.certificate.gap, _MOST_KEPT_GAP))
    result = solve_problem(problem, params)
    if params.stopped and result.plan is not None:
        notes("interrupted: this is the best plan found so far")
    elif result.termination.reason is TerminationReason.INFEASIBLE:
        from libra_plan.planner.explain import explain_no_plan

        ways = "; ".join(each.text for each in explain_no_plan(problem, params.time_limit_s))
        raise NoPlanError("no plan exists", got=result.termination.detail, way_out=ways or None)
    plan = result.require_plan()
    verdict = check_plan(problem, plan)
    if verdict.violations:
        listed = "; ".join(str(each) for each in verdict.violations[:5])
        raise RuntimeError(f"the plan breaks its own problem, a defect of ours: {listed}")
    for line in _remarks(problem, plan):
        notes(line)
    return replace(plan, problem=problem, proven_by=verdict.proof.by if verdict.proof.proven else None)


def _remarks(problem: Problem, plan: Plan) -> Iterator[str]:
    """Note which tasks no plan can run as they are, what is less certain, and what cannot be started."""
    for queued in plan.queued:
        if queued.code == "refused":
            yield f"warning: it waits because it cannot be priced: {queued.reason}"
    for running in plan.running:
        for role in running.roles:
            for line in role.choice.option.notes:
                if line.startswith(RANKS_BEYOND):
                    yield f"{running.task}/{role.role} is {line}"
    yield from _short_of_workers(plan, workload_of(problem))


def _short_of_workers(plan: Plan, workload: WorkloadFile | None) -> Iterator[str]:
    """Warn of each env role with fewer workers than its tool calls keep busy on average.

    By Little's law these are samples × turns × seconds of a call ÷ seconds of a step. Cost models let no turn
    wait for a worker, so with fewer the step is longer than the plan says.
    """
    steps = {running.task: running.configuration.step_time_s.value for running in plan.running}
    for task in () if workload is None else workload.tasks:
        for role in task.roles if task.id in steps else ():
            if role.workers is None or role.tool_wait_s_per_turn is None:
                continue
            step_s = steps[task.id]
            calls_s = task.work_per_step.samples * task.work_per_step.turns * role.tool_wait_s_per_turn
            busy = calls_s / step_s
            if busy > role.workers:
                yield (
                    f"warning: {task.id}/{role.id} has {role.workers:,} workers, and tool calls keep "
                    f"{busy:,.0f} busy on average in this plan, which lets no turn wait for a worker: steps "
                    f"take at least {calls_s / role.workers:,.0f} s, not {step_s:,.0f} s; state `workers` of "
                    f"{math.ceil(busy):,} or more"
                )
