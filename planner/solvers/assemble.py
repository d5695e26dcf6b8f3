"""From the stages of a solve to the plan: who runs, who waits and why, and what is proven."""

from __future__ import annotations

from collections.abc import Sequence

from libra_plan.planner.plan import (
    Certificate,
    DeadlineSlack,
    Pass,
    PlacedRole,
    Plan,
    RunningTask,
    Status,
)
from libra_plan.planner.problem import Problem
from libra_plan.planner.solvers.policies.base import Rule
from libra_plan.planner.solvers.policies.budget import cost_per_hour
from libra_plan.planner.solvers.policies.deadlines import slack_of
from libra_plan.planner.solvers.policies.fair_share import team_shares
from libra_plan.planner.solvers.stages import Stage

__all__ = ["plan_of"]


def plan_of(problem: Problem, rule: Rule, stages: Sequence[Stage], last: Stage) -> Plan:
    """Put the plan together from all stages; `last` is the one that has placed everything that runs."""
    running = _running(problem, last)
    order = {task.id: number for number, task in enumerate(problem.tasks)}
    queued = sorted((each for stage in stages for each in stage.queued), key=lambda each: order[each.task])
    return Plan(running, tuple(queued), _certificate(problem, rule, stages, running))


def _running(problem: Problem, last: Stage) -> tuple[RunningTask, ...]:
    found = {}
    for t, c in last.choice.items():
        each = last.search.tasks[t]
        entry, where = each.candidates[c], last.placed.placements[t] if last.placed else None
        if where is not None:
            moved = entry.held is None and _moved(problem, each.task.id, where.roles)
            found[each.task.id] = RunningTask(
                each.task.id, entry.column, where.roles, where.cpu, entry.normalised, moved
            )
    return tuple(found[task.id] for task in problem.tasks if task.id in found)


def _moved(problem: Problem, task: str, roles: Sequence[PlacedRole]) -> bool:
    """Tell whether a running task is placed otherwise than it is now; it may come back by chance."""
    now = {role.role: role.placed for role in roles}
    held = next((held for held in problem.running if held.task == task), None)
    return held is not None and now != {role.role: role.placed for role in held.roles}


def _certificate(
    problem: Problem, rule: Rule, stages: Sequence[Stage], running: Sequence[RunningTask]
) -> Certificate:
    first = stages[0]
    objective = rule.objective(first.search, first.choice)
    bounds = first.outcome.bounds if first.outcome is not None else {"none can run": 0.0}
    bound = max(objective, min(bounds.values(), default=float("inf")))
    gap = (bound - objective) / max(abs(objective), 1e-9)
    passes = tuple(each for stage in stages for each in _passes(rule, stage, several=len(stages) > 1))
    params = first.search.params
    proven = gap <= params.gap and all(
        abs(each.bound - each.objective) <= params.gap * max(abs(each.objective), 1e-9) for each in passes
    )
    floors = first.outcome.floors if first.outcome is not None else {}
    return Certificate(
        policy=problem.policy.value,
        status=Status.OPTIMAL if proven else Status.FEASIBLE,
        objective=objective,
        bound=bound,
        gap=gap,
        bounds=tuple(sorted(bounds.items())),
        baselines=tuple(
            sorted(
                (name, rule.objective(first.search, each.choice)) for name, each in first.baselines.items()
            )
        ),
        columns=sum(len(each.candidates) for stage in stages for each in stage.own),
        deterministic=params.deterministic and not params.stopped,
        cost_per_hour=cost_per_hour(problem.cluster, (each.column for each in running)),
        budget_per_hour=problem.budget_per_hour,
        passes=passes,
        deadlines=tuple(_slacks(stages, {each.task: each.moved for each in running})),
        teams=team_shares(first.search, first.choice, floors),
    )


def _passes(rule: Rule, stage: Stage, *, several: bool) -> list[Pass]:
    """List what a stage settled; with several, the stage's own objective comes last."""
    passes = [] if stage.outcome is None else list(stage.outcome.passes)
    if not several or not stage.own:
        return passes
    name = f"tier {stage.own[0].task.tier}"
    objective = rule.objective(stage.search, stage.choice)
    known = [] if stage.outcome is None else list(stage.outcome.bounds.values())
    bound = max(objective, min(known, default=objective))
    return [*(Pass(f"{name} {each.name}", each.objective, each.bound) for each in passes),
            Pass(name, objective, bound)]  # fmt: skip


def _slacks(stages: Sequence[Stage], moved: dict[str, bool]) -> list[DeadlineSlack]:
    found = []
    for stage in stages:
        numbers = {t: moved.get(each.task.id, False) for t, each in enumerate(stage.search.tasks)}
        missed = {} if stage.outcome is None else stage.outcome.missed
        own = range(stage.settled, len(stage.search.tasks))
        found += slack_of(stage.search, own, stage.choice, numbers, missed)
    return found
