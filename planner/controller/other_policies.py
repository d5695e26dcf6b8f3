"""Decide under policies other than the plain sum: solve with charged moves, and adopt the plan as a whole.

What tiers, quotas or deadlines promise holds for a whole plan only, so no part of it is adopted alone.
"""

from __future__ import annotations

from dataclasses import replace

from libra_plan.planner.controller.choose import Comparison, action_of, form_of
from libra_plan.planner.controller.escalation import RungResult, change, keep, movable, reason_of
from libra_plan.planner.controller.hysteresis import (
    SOLVE_LIMIT_S,
    count_looks,
    looks_needed,
    over_caps,
)
from libra_plan.planner.controller.snapshot import Snapshot
from libra_plan.planner.controller.state import Considered, Move, Rung
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem
from libra_plan.profiles.counting import counted

__all__ = ["solved", "solved_urgent"]

_PARAMS = SolveParams(deterministic=True, time_limit_s=SOLVE_LIMIT_S)


def solved(snapshot: Snapshot) -> RungResult:
    """Solve with every move charged for switch, error and threshold; adopt a plan proposed often enough."""
    policy, problem = snapshot.policy, _charged(snapshot)
    plan = solve_problem(problem, _PARAMS).plan
    if plan is None:
        return keep(snapshot, "best", "no plan was found that keeps what the policy promises", pending=())
    comparison, bound = _compare(snapshot, problem, plan), plan.certificate.bound
    moves = comparison.moves
    if not moves:
        return keep(snapshot, "best", "the policy's best plan is the one that runs", pending=(), bound=bound)
    considered = (Considered(Rung.TASKS, comparison.net, moves, "weighed"),)
    reasons = {snapshot.table.tasks[t].id: why for t, why in snapshot.held.items()}
    stuck = [reasons[move.task] for move in moves if move.task in reasons]
    if stuck:
        orders = tuple(sorted({each.order for each in stuck if each.order}))
        return keep(
            snapshot, "held", stuck[0].why, pending=(), bound=bound, considered=considered, orders=orders
        )
    pending = count_looks(snapshot.state.pending, ((move.task, move.action) for move in moves))
    looks = {each.task: each.looks for each in pending}
    at_once = snapshot.urgent_waiting & {move.task for move in moves if move.action == "start"}
    unripe = any(looks[move.task] < looks_needed(move.action, policy.rule) for move in moves)
    if unripe and not at_once:
        why = f"{counted(len(moves), 'task')} asked to change, not on enough looks in a row yet"
        return keep(snapshot, "looks", why, pending=pending, bound=bound, considered=considered)
    cap = over_caps(snapshot.problem, moves, policy.caps, snapshot.broken)
    if cap is not None:
        return keep(snapshot, "caps", cap, pending=pending, bound=bound, considered=considered)
    why = f"{counted(len(moves), 'change')}, each worth its switch under policy {problem.policy.value}"
    return change(
        snapshot,
        Rung.TASKS,
        "gain",
        why,
        plan,
        comparison,
        bound=bound,
        problem=problem,
        considered=considered,
    )


def solved_urgent(snapshot: Snapshot) -> RungResult | None:
    """Place what must be placed now and leave the others, if possible; None when nothing is urgent."""
    if not movable(snapshot):
        return None
    problem = _charged(snapshot, pinned=True)
    plan = solve_problem(problem, _PARAMS).plan
    if plan is None:
        return None
    comparison = _compare(snapshot, problem, plan)
    paused = any(task.id in snapshot.inputs.paused and task.held_gpus for task in snapshot.table.tasks)
    if not comparison.moves and not paused:
        return None
    return change(
        snapshot,
        Rung.TASKS,
        "event",
        reason_of(snapshot),
        plan,
        comparison,
        bound=plan.certificate.bound,
        problem=problem,
        pending=None,
    )


def _charged(snapshot: Snapshot, *, pinned: bool = False) -> Problem:
    """Add error and threshold to what a move costs each running task, as seconds of the horizon.

    `pinned`: a move of what can stay costs the whole horizon. Tasks that are to pause, and safe to, are
    left out.
    """
    policy, problem, more = snapshot.policy, snapshot.problem, dict[str, float]()
    safe = set()
    for t, task in enumerate(snapshot.table.tasks):
        if task.id in snapshot.inputs.paused and t not in snapshot.held:
            safe.add(task.id)
        if task.held_gpus and not task.broken:
            error = float(snapshot.errors[t].mean()) if len(snapshot.errors[t]) else 0.0
            share = 1.0 if pinned else policy.trust.confidence * error + policy.rule.gain_down
            more[task.id] = share * problem.horizon_s
    tasks = tuple(
        replace(task, restart_s=task.restart_s + more.get(task.id, 0.0))
        for task in problem.tasks
        if task.id not in safe
    )
    return replace(problem, tasks=tasks, running=tuple(h for h in problem.running if h.task not in safe))


def _compare(snapshot: Snapshot, problem: Problem, plan: Plan) -> Comparison:
    """Compare the plan with what runs, task by task."""
    now, runs = {task.id: task for task in snapshot.table.tasks}, {each.task: each for each in plan.running}
    moves = []
    for task in problem.tasks:
        new, old = runs.get(task.id), now[task.id]
        if (new is None and not old.held_gpus) or (new is not None and old.held_gpus and not new.moved):
            continue
        before = 0.0 if old.kept is None else float(old.values[old.kept])
        gpus = 0 if new is None else len(new.gpus)
        action = "pause" if new is None else action_of(old.held_gpus, gpus) if old.held_gpus else "start"
        after = 0.0 if new is None else task.weight * new.normalised
        switch_s = old.priced.task.restart_s if new is not None and old.held_gpus else 0.0
        cost = after * min(1.0, switch_s / problem.horizon_s)
        form = "" if new is None else form_of(new.configuration)
        moves.append(Move(task.id, action, old.held_gpus, gpus, after - before, 0.0, cost, switch_s, form))
    gain, cost = sum(move.worth for move in moves), sum(move.cost for move in moves)
    return Comparison(tuple(moves), gain, gain - cost, cost)
