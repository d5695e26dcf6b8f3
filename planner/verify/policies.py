"""Check what policies promise besides the objective: costs, deadlines, tiers and teams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from libra_plan.planner.plan import Configuration, DeadlineSlack, Plan
from libra_plan.planner.problem import Policy, Problem, Task
from libra_plan.planner.verify.rules import Violation, close

__all__ = ["check_policies"]

LOOSE = 1e-6  # relative: what passed through a solver
WHERE = "certificate"

Found = Iterator[Violation]


def check_policies(problem: Problem, plan: Plan, values: Mapping[str, float]) -> Found:
    """Yield where the plan costs too much, omits a missed deadline, or misstates a tier or a team.

    `values` maps each running task to its part of the objective.
    """
    yield from _cost(problem, plan)
    yield from _deadlines(problem, plan)
    if problem.policy is Policy.PRIORITY:
        yield from _tiers(problem, plan, values)
    if problem.policy is Policy.FAIR_SHARE:
        yield from _teams(problem, plan, values)
    for each in plan.certificate.passes:
        better = each.objective - each.bound if "latency" not in each.name else each.bound - each.objective
        if better > LOOSE * max(1.0, abs(each.objective)):
            message = f"pass {each.name} reaches {each.objective}, beyond its bound {each.bound}"
            yield Violation("bound", message, WHERE)


# ---------------------------------------------------------------- money


def _cost(problem: Problem, plan: Plan) -> Found:
    prices = dict(problem.cluster.price_per_gpu_hour)
    gpus = _gpus_by_class(plan.configurations)
    own = sum(prices.get(name, 0.0) * number for name, number in gpus.items())
    known = all(name in prices for name in gpus)
    stated, budget = plan.certificate.cost_per_hour, plan.certificate.budget_per_hour
    if (stated is None) != (not known) or (stated is not None and not close(stated, own, LOOSE)):
        yield Violation("cost", f"says {stated} an hour, its GPUs make {own if known else None}", WHERE)
    if budget != problem.budget_per_hour:
        yield Violation("budget", f"says a budget of {budget}, it is {problem.budget_per_hour}", WHERE)
    if problem.budget_per_hour is not None and (not known or own > problem.budget_per_hour * (1 + 1e-9)):
        yield Violation("budget", f"costs {own} an hour, the budget is {problem.budget_per_hour}", WHERE)


def _gpus_by_class(configurations: Iterable[Configuration]) -> Counter[str]:
    gpus: Counter[str] = Counter()
    for configuration in configurations:
        for gpu_class, size, number in configuration.blocks:
            gpus[gpu_class] += size * number
    return gpus


# ---------------------------------------------------------------- deadlines


def _deadlines(problem: Problem, plan: Plan) -> Found:
    """Check that the plan lists exactly the missed deadlines, with the right rates."""
    stated = {slack.task: slack for slack in plan.certificate.deadlines}
    running = {task.task: task for task in plan.running}
    for task in problem.tasks:
        wanted = _wanted(task, running[task.id].moved if task.id in running else False)
        rate = running[task.id].configuration.steps_per_s if task.id in running else 0.0
        kept = wanted is not None and rate >= wanted * (1 - LOOSE)
        slack = stated.get(task.id)
        if slack is None and not kept:
            yield Violation("deadline", f"runs {rate} steps/s of {wanted} and says nothing of it", task.id)
        if slack is not None and kept and wanted is not None and rate > wanted * (1 + LOOSE):
            yield Violation("deadline", f"says it is missed at {rate} steps/s of {wanted}", task.id)
        if slack is not None:
            yield from _slack(slack, wanted, rate)
    for name in stated.keys() - problem.task_of.keys():
        yield Violation("deadline", "lists a task that the problem does not have", name)


def _wanted(task: Task, moved: bool) -> float | None:
    """Return the rate that a task needs, steps/s; None when no rate is enough."""
    least = task.min_steps_per_s or 0.0
    if task.deadline is None:
        return least
    left_s = task.deadline.within_s - (task.restart_s if moved else 0.0)
    return max(least, task.deadline.steps / left_s) if left_s > 0 else None


def _slack(slack: DeadlineSlack, wanted: float | None, rate: float) -> Found:
    def same(one: float | None, other: float | None) -> bool:
        return one == other or (one is not None and other is not None and close(one, other, LOOSE))

    if not same(slack.wanted_steps_per_s, wanted) or not same(slack.steps_per_s, rate):
        message = f"says {slack.steps_per_s} of {slack.wanted_steps_per_s} steps/s, it is {rate} of {wanted}"
        yield Violation("deadline", message, slack.task)
    alone, beside = slack.best_alone_steps_per_s, slack.best_beside_steps_per_s
    if alone is not None and beside is not None and beside > alone * (1 + LOOSE):
        yield Violation("deadline", f"is said to do better beside others, {beside}, than alone", slack.task)
    if beside is not None and rate > beside * (1 + LOOSE):
        yield Violation("deadline", f"runs at {rate}, beyond what is said to be possible", slack.task)


# ---------------------------------------------------------------- tiers and teams


def _tiers(problem: Problem, plan: Plan, values: Mapping[str, float]) -> Found:
    """Check the stated objective of every tier."""
    stated = {each.name: each.objective for each in plan.certificate.passes}
    tiers = sorted({task.tier for task in problem.tasks})
    if len(tiers) < 2:
        return
    for tier in tiers:
        tasks = [each for each in plan.running if problem.task_of[each.task].tier == tier]
        own = sum(values[each.task] for each in tasks)
        said = stated.get(f"tier {tier}")
        if said is None or not close(said, own, LOOSE):
            yield Violation("tier", f"says tier {tier} is worth {said}, its tasks make {own}", WHERE)


def _teams(problem: Problem, plan: Plan, values: Mapping[str, float]) -> Found:
    """Check each team's GPUs, what of them is borrowed, and that it has at least what its quota gave."""
    quotas = {quota.team: quota for quota in problem.quotas}
    teams = quotas.keys() | {task.team or "-" for task in problem.tasks}
    stated = {share.team: share for share in plan.certificate.teams}
    if stated.keys() != teams:
        yield Violation("team", f"lists {sorted(stated)}, the teams are {sorted(teams)}", WHERE)
        return
    for team, share in stated.items():
        tasks = [each for each in plan.running if (problem.task_of[each.task].team or "-") == team]
        gpus, worth = (
            _gpus_by_class(each.configuration for each in tasks),
            sum(values[each.task] for each in tasks),
        )
        quota = quotas[team].gpus if team in quotas else 0
        limits = quotas[team].gpus_of_class if team in quotas else ()
        over = max(0, sum(gpus.values()) - quota, sum(max(0, gpus[name] - most) for name, most in limits))
        if (share.quota_gpus, share.gpus, share.borrowed_gpus) != (quota, sum(gpus.values()), over):
            message = f"has {sum(gpus.values())} GPUs of a quota of {quota}, {over} borrowed; not as stated"
            yield Violation("team", message, team)
        if not close(share.worth, worth, LOOSE):
            yield Violation("team", f"says worth {share.worth}, its tasks make {worth}", team)
        if worth < share.worth_at_quota * (1 - LOOSE):
            yield Violation("team", f"is worth {worth}, its quota gives {share.worth_at_quota}", team)
