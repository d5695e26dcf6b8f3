"""Looks under policies other than the plain sum: the planner's own solve, charged, adopted as a whole."""

from __future__ import annotations

from dataclasses import replace

from libra_plan.planner.controller.decision import Considered, Decision, Move, Rung
from libra_plan.planner.controller.hysteresis import form_of, looks_needed, over_caps
from libra_plan.planner.controller.outcome import Outcome, keep, require_sound
from libra_plan.planner.controller.snapshot import Desk
from libra_plan.planner.controller.state import Pending
from libra_plan.planner.controller.urgent import left_waiting, movable, why_of
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem

__all__ = ["look_with_solver", "urgent_with_solver"]

_PARAMS = SolveParams(deterministic=True, time_limit_s=20.0)


def look_with_solver(desk: Desk) -> Outcome:
    """Solve with every move charged for switch, doubt and threshold; adopt when all of it is ripe.

    Such a plan is taken or left whole: what tiers, quotas or deadlines promise holds for all of it.
    """
    problem = _charged(desk)
    plan = solve_problem(problem, _PARAMS).plan
    if plan is None:
        return keep(desk, "best", "no plan was found that keeps what the policy promises", pending=())
    moves = _moves(desk, problem, plan)
    bound = plan.certificate.bound
    if not moves:
        return keep(desk, "best", "the policy's best plan is the one that runs", pending=(), bound=bound)
    considered = (Considered(Rung.TASKS, sum(m.worth - m.cost for m in moves), moves, "weighed"),)
    back = {desk.market.tasks[t].id: why for t, why in desk.held.items()}
    stuck = [back[move.task] for move in moves if move.task in back]
    if stuck:
        orders = tuple(sorted({each.order for each in stuck if each.order}))
        return keep(desk, "held", stuck[0].why, pending=(), bound=bound, considered=considered, orders=orders)
    pending = _counted(desk, moves)
    looks = {each.task: each.looks for each in pending}
    rule = desk.inputs.policy.rule
    at_once = bool(left_waiting(desk) & {move.task for move in moves if move.action == "start"})
    if not at_once and any(looks[move.task] < looks_needed(move.action, rule) for move in moves):
        why = f"{len(moves)} tasks are asked to change, not on enough looks in a row yet"
        return keep(desk, "looks", why, pending=pending, bound=bound, considered=considered)
    broken = frozenset(task.id for task in desk.market.tasks if task.broken)
    cap = over_caps(desk.problem, moves, desk.inputs.policy.caps, broken)
    if cap is not None:
        return keep(desk, "caps", cap, pending=pending, bound=bound, considered=considered)
    require_sound(problem, plan)
    gain = sum(move.worth for move in moves)
    cost = sum(move.cost for move in moves)
    decision = Decision(
        Rung.TASKS,
        "gain",
        f"{len(moves)} changes, each worth its switch under policy {problem.policy.value}",
        moves,
        gain,
        gain - cost,
        cost,
        running=desk.running,
        bound=bound,
        considered=considered,
        plan=plan,
    )
    return Outcome(decision, (), None, desk.state.batches, problem)


def urgent_with_solver(desk: Desk) -> Outcome | None:
    """Place what must be placed now, with survivors all but pinned; None when nothing is urgent."""
    if not movable(desk):
        return None
    problem = _charged(desk, pinned=True)
    plan = solve_problem(problem, _PARAMS).plan
    if plan is None:
        return None
    moves = _moves(desk, problem, plan)
    paused = [task for task in desk.market.tasks if task.id in desk.inputs.paused and task.held_gpus]
    if not moves and not paused:
        return None
    require_sound(problem, plan)
    gain = sum(move.worth for move in moves)
    decision = Decision(
        Rung.TASKS,
        "event",
        why_of(desk),
        moves,
        gain,
        gain - sum(move.cost for move in moves),
        sum(move.cost for move in moves),
        running=desk.running,
        bound=plan.certificate.bound,
        plan=plan,
    )
    return Outcome(decision, None, None, desk.state.batches, problem)


def _charged(desk: Desk, *, pinned: bool = False) -> Problem:
    """Add doubt and threshold to what a move costs each running task, as seconds of the horizon.

    `pinned`: a move of what can stay costs the whole horizon. Tasks that are to pause, and safe to, are
    left out.
    """
    policy = desk.inputs.policy
    more: dict[str, float] = {}
    for t, task in enumerate(desk.market.tasks):
        if task.held_gpus and not task.broken:
            doubt = float(desk.doubts[t].mean()) if len(desk.doubts[t]) else 0.0
            share = 1.0 if pinned else policy.trust.confidence * doubt + policy.rule.gain_down
            more[task.id] = share * desk.problem.horizon_s
    safe = {task.id for t, task in enumerate(desk.market.tasks) if t not in desk.held} & desk.inputs.paused
    tasks = tuple(
        replace(task, restart_s=task.restart_s + more.get(task.id, 0.0))
        for task in desk.problem.tasks
        if task.id not in safe
    )
    held = tuple(each for each in desk.problem.running if each.task not in safe)
    return replace(desk.problem, tasks=tasks, running=held)


def _moves(desk: Desk, problem: Problem, plan: Plan) -> tuple[Move, ...]:
    """Compare the plan with what runs, task by task."""
    now = {task.id: task for task in desk.market.tasks}
    runs = {each.task: each for each in plan.running}
    found = []
    for task in problem.tasks:
        new, old = runs.get(task.id), now[task.id]
        before = 0.0 if old.kept is None else float(old.worth[old.kept])
        after = 0.0 if new is None else task.weight * new.normalised
        if (new is None and not old.held_gpus) or (new is not None and old.held_gpus and not new.moved):
            continue
        gpus = 0 if new is None else len(new.gpus)
        more = gpus - old.held_gpus
        way = "pause" if new is None else "start" if not old.held_gpus else (
            "grow" if more > 0 else "shrink" if more < 0 else "move")  # fmt: skip
        switch = old.priced.task.restart_s if new is not None and old.held_gpus else 0.0
        cost = after * min(1.0, switch / problem.horizon_s)
        form = "" if new is None else form_of(new.configuration)
        found.append(Move(task.id, way, old.held_gpus, gpus, after - before, 0.0, cost, switch, form))
    return tuple(found)


def _counted(desk: Desk, moves: tuple[Move, ...]) -> tuple[Pending, ...]:
    looks = {(each.task, each.direction): each.looks for each in desk.state.pending}
    asked = sorted((move.task, move.action) for move in moves)
    return tuple(Pending(task, way, looks.get((task, way), 0) + 1) for task, way in asked)
