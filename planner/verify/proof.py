"""Check the rates, moves, objective and bound that a plan states, by computing them again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from libra_plan.planner.plan import Plan, RunningTask, Status
from libra_plan.planner.problem import LEAST_KEPT, Policy, Problem, Task
from libra_plan.planner.verify.bound import Recomputed, RunningNow, Table, best_within, dual_bound, one_better
from libra_plan.planner.verify.enumeration import TooManyWaysError
from libra_plan.planner.verify.policies import check_policies
from libra_plan.planner.verify.rules import Violation, close

__all__ = ["UNKNOWN", "Proof", "check_proof"]

LOOSE = 1e-6  # relative: what passed through a solver
MOST_SEARCHED = 48  # tasks; with more, the combinations near the bound are too many

Found = Iterator[Violation]


@dataclass(frozen=True, slots=True)
class Proof:
    """What of a certificate's bound was recomputed from the problem.

    `bound` is the least bound that was (None: none), `by` says how: `dual prices`, or `search` of every
    combination that could be better. The certificate's bound is `proven` where it is no lower than that.
    """

    bound: float | None
    by: str | None
    proven: bool


UNKNOWN = Proof(None, None, proven=False)


def check_proof(problem: Problem, plan: Plan) -> tuple[list[Violation], Proof]:
    """Check rates, moves, objective, bound and gap against the plan and the problem."""
    found: list[Violation] = []
    table = Table(problem)
    now = table.now
    for running in plan.running:
        found += _rate(table, running)
        moved = _moves(now, plan, running)
        if running.moved != moved:
            found.append(Violation("moved", f"says moved {running.moved}, it is {moved}", running.task))
    if plan.certificate.policy != problem.policy.value:
        stated = f"is for {plan.certificate.policy}, not {problem.policy.value}"
        found.append(Violation("policy", stated, "certificate"))
    found += _objective(table, plan, now)
    found += _bound(plan)
    values = {running.task: _value(problem, plan, running, now) for running in plan.running}
    found += check_policies(problem, plan, values)
    if found:
        return found, UNKNOWN
    return _recomputed(table, plan, values)


def _recomputed(table: Table, plan: Plan, values: Mapping[str, float]) -> tuple[list[Violation], Proof]:
    """Recompute the bound; the plan's bound is a violation if the recomputed one contradicts it."""
    problem, certificate = table.problem, plan.certificate
    if problem.sharing:
        return [], UNKNOWN
    tasks = [task for task in problem.tasks if task.id in _first_tier(problem)]
    dual = dual_bound(table, tasks, plan)
    if dual is None:
        return [], UNKNOWN
    slack = LOOSE * max(abs(certificate.bound), 1e-3 * abs(dual.bound))
    lp = dict(certificate.bounds).get("lp")
    if lp is not None and certificate.duals and dual.whole and lp < dual.bound - slack:
        message = f"says that dual prices prove {lp}, they prove {dual.bound}"
        return [Violation("bound", message, "certificate")], UNKNOWN
    if certificate.deadlines:
        # whether a deadline that the plan misses could be kept is not recomputed
        return [], Proof(dual.bound, "dual prices", proven=False)
    if certificate.bound >= dual.bound - slack:
        return [], Proof(dual.bound, "dual prices", proven=True)
    others_first = any(task.latency_first for task in problem.tasks)
    if problem.policy in (Policy.MAX_MIN, Policy.FAIR_SHARE) or others_first:
        # the search knows neither levels nor floors nor step times that were fixed before
        return [], Proof(dual.bound, "dual prices", proven=False)
    return _searched(table, dual, plan, tasks, values)


def _searched(
    table: Table, dual: Recomputed, plan: Plan, tasks: Sequence[Task], values: Mapping[str, float]
) -> tuple[list[Violation], Proof]:
    """Search for combinations above a bound that dual prices do not prove."""
    certificate = plan.certificate
    above = certificate.bound + LOOSE * max(abs(certificate.bound), 1e-12)
    sure = table.sure_to_place(dual.choices)
    own = sum(values.get(task.id, 0.0) for task in tasks)
    if sure and (gain := one_better(table, dual, plan, values)) > above - own:
        message = f"says that no plan exceeds {certificate.bound}; changing one task makes {own + gain}"
        return [Violation("bound", message, "certificate")], UNKNOWN
    known = Proof(dual.bound, "dual prices", proven=False)
    if len(tasks) > MOST_SEARCHED:
        return [], known
    found = best_within(table, dual, above)
    if found.value is None:
        return [], Proof(certificate.bound, "search", proven=True) if found.complete else known
    if not sure:
        return [], known
    message = f"says that no plan exceeds {certificate.bound}; there is one of {found.value}"
    return [Violation("bound", message, "certificate")], UNKNOWN


def _rate(table: Table, running: RunningTask) -> Found:
    """Check the rate: the configuration's, against what the task alone would reach on its fair share."""
    if not running.normalised > 0:  # also finds NaN
        yield Violation("normalised", f"its throughput is {running.normalised}, not above 0", running.task)
        return
    try:
        reference = table.reference(table.problem.task_of[running.task])
    except TooManyWaysError:
        return
    own = None if reference is None else running.configuration.steps_per_s / reference
    if own is None or not close(running.normalised, own, LOOSE):
        yield Violation("normalised", f"says {running.normalised}, alone it makes {own}", running.task)


def _moved(now: RunningNow, running: RunningTask) -> bool:
    """Return whether a task of the running plan does not keep exactly its layouts and GPUs."""
    held = now.tasks.get(running.task)
    if held is None:
        return False
    was, becomes = {}, {}
    for role in held.roles:
        layouts = role.mix if role.mix else [role.layout] * len(role.replicas)
        was[role.role] = dict(zip(role.replicas, layouts, strict=False))
    for placed in running.roles:
        option = placed.choice.option
        kinds = [each.layout for each in option.mix] if option.mix else [option.layout] * len(placed.replicas)
        becomes[placed.role] = dict(zip(placed.replicas, kinds, strict=False))
    return was != becomes


def _moves(now: RunningNow, plan: Plan, running: RunningTask) -> bool:
    """Return whether a task starts anew; those that run jointly all do, unless each stays as it is."""
    run = next((run for run in plan.joint if running.task in run.tasks), None)
    if run is None:
        return _moved(now, running) or running.task in now.sharing
    together = [each for each in plan.running if each.task in run.tasks]
    same = all(each.task in now.tasks and not _moved(now, each) for each in together)
    return running.task in now.tasks and not same


def _value(problem: Problem, plan: Plan, running: RunningTask, now: RunningNow) -> float:
    """Return weight, with what waiting adds, times throughput, less what a move loses of the horizon."""
    task = problem.task_of[running.task]
    kept, waited = 1.0, 0.0
    if _moves(now, plan, running):
        kept = max(LEAST_KEPT, 1.0 - task.restart_s / problem.horizon_s)
    elif problem.aging_s and running.task not in now.tasks:
        waited = task.waited_s / problem.aging_s
    return task.weight * (1.0 + waited) * running.normalised * kept


def _first_tier(problem: Problem) -> set[str]:
    """Name the tasks the certificate's sum is about: under `priority` those of the first tier."""
    first = min(task.tier for task in problem.tasks)
    return {task.id for task in problem.tasks if problem.policy is not Policy.PRIORITY or task.tier == first}


def _objective(table: Table, plan: Plan, now: RunningNow) -> Found:
    problem, stated = table.problem, plan.certificate.objective
    if problem.policy is not Policy.MAX_MIN:
        counted = _first_tier(problem)
        values = (_value(problem, plan, each, now) for each in plan.running if each.task in counted)
        possible = {sum(values)}
    else:
        possible = _least(table, plan)
    if not any(close(stated, own, LOOSE) for own in possible):
        own = " or ".join(f"{value:.9g}" for value in sorted(possible))
        yield Violation("objective", f"says {stated}, the running tasks make {own}", "certificate")


def _least(table: Table, plan: Plan) -> set[float]:
    """Return the possible least throughputs; a waiting task counts 0, unless nothing could run it.

    Where the ways to run a waiting task are too many to enumerate, both are possible.
    """
    running = min((task.normalised for task in plan.running), default=0.0)
    waiting = [table.problem.task_of[queued.task] for queued in plan.queued]
    try:
        able = any(table.reference(task) is not None for task in waiting)
    except TooManyWaysError:
        return {0.0, running}
    return {0.0 if able else running}


def _bound(plan: Plan) -> Found:
    """Check that the bound is the least of those named and not below the objective, and check the gap."""
    proof = plan.certificate
    where = "certificate"
    slack = LOOSE * abs(proof.objective) + 1e-12
    numbers = [proof.objective, proof.bound, proof.gap, *(value for _, value in proof.bounds)]
    if not all(map(isfinite, numbers)):
        yield Violation("bound", f"says {numbers}, not all of which are finite", where)
        return
    for name, price in proof.duals:
        if not isfinite(price):
            yield Violation("duals", f"says that {name} has the price {price}", where)
    if not proof.bound >= proof.objective - slack:
        yield Violation("bound", f"bound {proof.bound} is below objective {proof.objective}", where)
    if proof.bounds and not close(proof.bound, min(value for _, value in proof.bounds), LOOSE):
        yield Violation("bound", f"bound {proof.bound} is not the least of {proof.bounds}", where)
    gap = (proof.bound - proof.objective) / max(abs(proof.objective), 1e-9)
    if not abs(max(proof.gap, 0.0) - max(gap, 0.0)) <= LOOSE * max(1.0, gap):
        yield Violation("gap", f"says gap {proof.gap}, bound and objective make {gap}", where)
    if proof.status is Status.OPTIMAL and gap > 1e-3:
        yield Violation("status", f"says optimal with a gap of {gap}", where)
    for name, value in proof.baselines:
        if proof.policy == Policy.THROUGHPUT.value and value > proof.objective + slack:
            yield Violation("baseline", f"{name} reaches {value}, the plan {proof.objective}", where)
