"""Check what a plan says of its worth: rates, moves, the objective and the bound on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from libra_plan.models.topology import GpuId
from libra_plan.planner.plan import Plan, RunningTask, Status
from libra_plan.planner.problem import LEAST_KEPT, IncumbentTask, Policy, Problem
from libra_plan.planner.verify.policies import check_policies
from libra_plan.planner.verify.reference import reference_is_cheap, reference_steps_per_s
from libra_plan.planner.verify.rules import Violation, close

__all__ = ["check_proof"]

LOOSE = 1e-6  # relative: what passed through a solver

Found = Iterator[Violation]


def check_proof(problem: Problem, plan: Plan) -> Found:
    """Yield where rates, moves, objective, bound or gap are not what the plan and problem make."""
    now = _Now.of(problem)
    for running in plan.running:
        yield from _rate(problem, running)
        moved = _moves(now, plan, running)
        if running.moved != moved:
            yield Violation("moved", f"says moved {running.moved}, it is {moved}", running.task)
    if plan.certificate.policy != problem.policy.value:
        yield Violation(
            "policy", f"is for {plan.certificate.policy}, not {problem.policy.value}", "certificate"
        )
    yield from _objective(problem, plan, now)
    yield from _bound(plan)
    worths = {running.task: _worth(problem, plan, running, now) for running in plan.running}
    yield from check_policies(problem, plan, worths)


def _rate(problem: Problem, running: RunningTask) -> Found:
    """Check the rate: the configuration's, against what the task alone would reach on its fair share."""
    if not running.normalised > 0:  # also finds NaN
        yield Violation("normalised", f"its throughput is {running.normalised}, not above 0", running.task)
        return
    task = problem.task_of[running.task]
    if not reference_is_cheap(problem, task):
        return
    reference = reference_steps_per_s(problem, task)
    own = None if reference is None else running.configuration.steps_per_s / reference
    if own is None or not close(running.normalised, own, LOOSE):
        yield Violation("normalised", f"says {running.normalised}, alone it makes {own}", running.task)


@dataclass(frozen=True, slots=True)
class _Now:
    """What runs: what each task holds, and the tasks on GPUs that another one is on, too."""

    held: Mapping[str, IncumbentTask]
    sharing: frozenset[str]

    @classmethod
    def of(cls, problem: Problem) -> _Now:
        on_gpu: dict[GpuId, set[str]] = {}
        for held in problem.running:
            for gpu in (gpu for role in held.roles for replica in role.replicas for gpu in replica):
                on_gpu.setdefault(gpu, set()).add(held.task)
        several = [tasks for tasks in on_gpu.values() if len(tasks) > 1]
        return cls({held.task: held for held in problem.running}, frozenset().union(*several))


def _moved(now: _Now, running: RunningTask) -> bool:
    """Tell whether a task of the running plan does not keep exactly its layouts and GPUs."""
    held = now.held.get(running.task)
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


def _moves(now: _Now, plan: Plan, running: RunningTask) -> bool:
    """Tell whether a task starts anew; those that run jointly all do, unless each stays as it is."""
    run = next((run for run in plan.joint if running.task in run.tasks), None)
    if run is None:
        return _moved(now, running) or running.task in now.sharing
    together = [each for each in plan.running if each.task in run.tasks]
    same = all(each.task in now.held and not _moved(now, each) for each in together)
    return running.task in now.held and not same


def _worth(problem: Problem, plan: Plan, running: RunningTask, now: _Now) -> float:
    """Give weight, with what waiting adds, times throughput, less what a move loses of the horizon."""
    task = problem.task_of[running.task]
    kept, waited = 1.0, 0.0
    if _moves(now, plan, running):
        kept = max(LEAST_KEPT, 1.0 - task.restart_s / problem.horizon_s)
    elif problem.aging_s and running.task not in now.held:
        waited = task.waited_s / problem.aging_s
    return task.weight * (1.0 + waited) * running.normalised * kept


def _first_tier(problem: Problem) -> set[str]:
    """Name the tasks the certificate's sum is about: under `priority` those of the first tier."""
    first = min(task.tier for task in problem.tasks)
    return {task.id for task in problem.tasks if problem.policy is not Policy.PRIORITY or task.tier == first}


def _objective(problem: Problem, plan: Plan, now: _Now) -> Found:
    told = plan.certificate.objective
    if problem.policy is not Policy.MAX_MIN:
        counted = _first_tier(problem)
        worths = (_worth(problem, plan, each, now) for each in plan.running if each.task in counted)
        possible = {sum(worths)}
    else:
        possible = _least(problem, plan)
    if not any(close(told, own, LOOSE) for own in possible):
        own = " or ".join(f"{value:.9g}" for value in sorted(possible))
        yield Violation("objective", f"says {told}, the running tasks make {own}", "certificate")


def _least(problem: Problem, plan: Plan) -> set[float]:
    """Give the least throughput; a waiting task counts 0, unless nothing could run it.

    Where trying every configuration of a waiting task is not cheap, both are possible.
    """
    running = min((task.normalised for task in plan.running), default=0.0)
    waiting = [problem.task_of[queued.task] for queued in plan.queued]
    if not all(reference_is_cheap(problem, task) for task in waiting):
        return {0.0, running}
    able = any(reference_steps_per_s(problem, task) is not None for task in waiting)
    return {0.0 if able else running}


def _bound(plan: Plan) -> Found:
    """Check that the bound is no lower than the objective, the least named, and gives the gap."""
    proof = plan.certificate
    where = "certificate"
    slack = LOOSE * abs(proof.objective) + 1e-12
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
