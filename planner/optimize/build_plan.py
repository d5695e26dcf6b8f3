"""Build the plan from the stages of a solve: tasks that run, tasks that wait and why, and the proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from libra_plan.planner.configurations.joint import JointTask
from libra_plan.planner.optimize.joint import (
    joint_run,
    own_configuration,
    own_roles,
    own_shares,
    shares_now,
    starts_anew,
)
from libra_plan.planner.optimize.objective import Candidate, cost_per_hour
from libra_plan.planner.optimize.placement import TaskPlacement
from libra_plan.planner.optimize.policies.base import PlanPolicy
from libra_plan.planner.optimize.policies.deadlines import slack_of
from libra_plan.planner.optimize.policies.fair_share import team_shares
from libra_plan.planner.optimize.solve_stages import SolveStage
from libra_plan.planner.plan import (
    Certificate,
    Configuration,
    DeadlineSlack,
    JointRun,
    Pass,
    PlacedRole,
    Plan,
    RunningTask,
    Status,
)
from libra_plan.planner.problem import Problem

__all__ = ["build_plan"]

_ROUNDED = 2e-9
"""The LP's bound is rounded up by half of this: all that lies between it and an objective of 0."""


def build_plan(problem: Problem, rule: PlanPolicy, stages: Sequence[SolveStage], last: SolveStage) -> Plan:
    """Build the plan from all stages; `last` is the one that has placed everything that runs."""
    running = _running(problem, last)
    order = {task.id: number for number, task in enumerate(problem.tasks)}
    queued = sorted((each for stage in stages for each in stage.queued), key=lambda each: order[each.task])
    joint = _joint(last)
    covered = {task for run in joint for task in run.tasks}
    configurations = [each.configuration for each in running if each.task not in covered] + [
        run.configuration for run in joint
    ]
    return Plan(running, tuple(queued), _certificate(problem, rule, stages, running, configurations), joint)


def _running(problem: Problem, last: SolveStage) -> tuple[RunningTask, ...]:
    found = {}
    for t, c in last.choice.items():
        each = last.search.tasks[t]
        entry, where = each.candidates[c], last.placed.placements[t] if last.placed else None
        if where is not None and isinstance(each.task, JointTask):
            references = [last.search.tasks[member].reference_steps_per_s for member in each.members]
            for one in _running_jointly(problem, each.task, entry, where, references):
                found[one.task] = one
        elif where is not None:
            moved = entry.held is None and _moved(problem, each.task.id, where.roles)
            found[each.task.id] = RunningTask(
                each.task.id, entry.configuration, where.roles, where.cpu, entry.normalised, moved
            )
    return tuple(found[task.id] for task in problem.tasks if task.id in found)


def _running_jointly(
    problem: Problem,
    joint: JointTask,
    entry: Candidate,
    where: TaskPlacement,
    references: Sequence[float | None],
) -> list[RunningTask]:
    """Return every member with its part of a joint configuration."""
    moved = starts_anew(problem, joint, where.roles) if entry.held is None else frozenset()
    return [
        RunningTask(
            member.id,
            own_configuration(member, entry.configuration),
            own_roles(member, where.roles),
            own_shares(member, where.cpu),
            entry.configuration.steps_per_s / (reference or 1.0),
            member.id in moved,
        )
        for member, reference in zip(joint.members, references, strict=True)
    ]


def _joint(last: SolveStage) -> tuple[JointRun, ...]:
    """List the joint runs."""
    chosen = [(last.search.tasks[t], c) for t, c in sorted(last.choice.items())]
    return tuple(
        joint_run(each.task, each.candidates[c].configuration)
        for each, c in chosen
        if isinstance(each.task, JointTask)
    )


def _moved(problem: Problem, task: str, roles: Sequence[PlacedRole]) -> bool:
    """Return whether a running task is placed differently from now; it may get its GPUs back by chance."""
    now = {role.role: role.placed for role in roles}
    held = next((held for held in problem.running if held.task == task), None)
    if held is None:
        return False
    return shares_now(problem, task) or now != {role.role: role.placed for role in held.roles}


def _certificate(
    problem: Problem,
    rule: PlanPolicy,
    stages: Sequence[SolveStage],
    running: Sequence[RunningTask],
    configurations: Sequence[Configuration],
) -> Certificate:
    first = stages[0]
    objective = rule.objective(first.search, first.choice)
    bounds = first.outcome.bounds if first.outcome is not None else {"none can run": 0.0}
    bound = max(objective, min(bounds.values(), default=float("inf")))
    gap = (bound - objective) / max(abs(objective), 1e-9)
    passes = tuple(each for stage in stages for each in _passes(rule, stage, several=len(stages) > 1))
    params = first.search.params
    proven = gap <= params.gap and all(
        abs(each.bound - each.objective) <= max(params.gap * abs(each.objective), _ROUNDED) for each in passes
    )
    floors = first.outcome.floors if first.outcome is not None else {}
    duals = first.outcome.duals if first.outcome is not None else {}
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
        configurations=sum(len(each.candidates) for stage in stages for each in stage.own),
        deterministic=params.deterministic and not params.stopped,
        cost_per_hour=cost_per_hour(problem.cluster, configurations),
        budget_per_hour=problem.budget_per_hour,
        passes=passes,
        deadlines=tuple(_slacks(stages, {each.task: each.moved for each in running})),
        teams=team_shares(first.search, first.choice, floors),
        duals=tuple(sorted(duals.items())),
    )


def _passes(rule: PlanPolicy, stage: SolveStage, *, several: bool) -> list[Pass]:
    """List the passes of a stage; with several, the stage's own objective comes last."""
    passes = [] if stage.outcome is None else list(stage.outcome.passes)
    if not several or not stage.own:
        return passes
    name = f"tier {stage.own[0].task.tier}"
    objective = rule.objective(stage.search, stage.choice)
    known = [] if stage.outcome is None else list(stage.outcome.bounds.values())
    bound = max(objective, min(known, default=objective))
    duals = () if stage.outcome is None else tuple(sorted(stage.outcome.duals.items()))
    own = [replace(each, name=f"{name} {each.name}") for each in passes]
    return [*own, Pass(name, objective, bound, duals)]


def _slacks(stages: Sequence[SolveStage], moved: dict[str, bool]) -> list[DeadlineSlack]:
    found = []
    for stage in stages:
        numbers = {t: moved.get(each.task.id, False) for t, each in enumerate(stage.search.tasks)}
        missed = {} if stage.outcome is None else stage.outcome.missed
        own = range(stage.settled, len(stage.search.tasks))
        found += slack_of(stage.search, own, stage.choice, numbers, missed)
    return found
