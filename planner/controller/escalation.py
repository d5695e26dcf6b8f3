"""The rungs of the ladder: batch steps, elastic shifts, roles within their task's GPUs, tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from libra_plan.planner.controller.choose import Proposal, certificate, choose, kept_choice, plan_of
from libra_plan.planner.controller.configuration_values import market_of, prices_of, value_bound
from libra_plan.planner.controller.decision import Considered, Decision, Move, Rung
from libra_plan.planner.controller.elastic import Shift, growth_of, pools_of, shift_of
from libra_plan.planner.controller.hysteresis import (
    Weighed,
    counted,
    directions,
    looks_needed,
    over_caps,
    weigh,
)
from libra_plan.planner.controller.outcome import Outcome, adopt, keep, prices_by_name, require_sound
from libra_plan.planner.controller.snapshot import Desk
from libra_plan.planner.controller.state import Pending
from libra_plan.planner.controller.urgent import left_waiting
from libra_plan.planner.plan import Plan, RunningTask
from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.telemetry.observations import RoleLoad
from libra_plan.planner.verify import violations_of

__all__ = ["batches", "elastic", "tasks_and_roles"]


def batches(desk: Desk) -> Outcome:
    """Step batch settings that fit and save enough, on enough looks in a row; GPUs stay as they are."""
    rule = desk.inputs.policy.rule
    runs = {(held.task, role.role) for held in desk.problem.running for role in held.roles}
    told = desk.window.batch_steps if desk.window else ()
    steps = [s for s in told if (s.task, s.role) in runs and rule.gain_up <= s.saves < 1.0]
    before = {(each.task, each.direction): each.looks for each in desk.state.batches}
    ways = {(step.task, f"batch:{step.role}:{step.setting}:{step.after:g}"): step for step in steps}
    now = tuple(Pending(task, way, before.get((task, way), 0) + 1) for task, way in sorted(ways))
    others = tuple(each for each in desk.state.batches if not each.direction.startswith("batch:"))
    ripe = tuple(ways[each.task, each.direction] for each in now if each.looks >= rule.looks_up)
    if not ripe:
        return Outcome(None, counted=(*others, *now))
    said = ", ".join(f"{s.task}/{s.role} {s.setting} {s.before:g} → {s.after:g}" for s in ripe)
    why = f"{said}: saves at least {min(step.saves for step in ripe):.1%} of a step, and moves nothing"
    return Outcome(
        Decision(Rung.BATCHES, "batches", why, batch_steps=ripe, running=desk.running), counted=others
    )


def elastic(desk: Desk) -> Outcome:
    """Let one replica of one elastic task change between training and rollout, when it pays."""
    policy = desk.inputs.policy
    loads = {(each.task, each.role): each for each in (desk.window.loads if desk.window else ())}
    before = {(each.task, each.direction): each.looks for each in desk.state.batches}
    others = tuple(each for each in desk.state.batches if each.direction.startswith("batch:"))
    now, best = [], None
    for held in desk.problem.running:
        if held.task not in policy.elastic.tasks or _just_shifted(desk, held.task):
            continue
        for shift in _shifts(desk, held, loads):
            net = 1.0 - shift.after_s / shift.before_s - shift.switch_s / desk.problem.horizon_s
            if net < policy.rule.gain_up:
                continue
            looks = before.get((shift.task, shift.direction), 0) + 1
            now.append(Pending(shift.task, shift.direction, looks))
            if looks >= policy.rule.looks_up and (best is None or net > best[0]):
                best = (net, shift)
    counts = (*others, *now)
    if best is None:
        return Outcome(None, counted=counts)
    return _shifted(desk, best[1], best[0], others)


def _shifts(desk: Desk, held: IncumbentTask, loads: dict[tuple[str, str], RoleLoad]) -> list[Shift]:
    """Propose at most a replica that changes over and one that joins."""
    policy = desk.inputs.policy.elastic
    found = (shift_of(desk.problem, held, policy, loads), growth_of(desk.problem, held, policy))
    return [each for each in found if isinstance(each, Shift)]


def _just_shifted(desk: Desk, task: str) -> bool:
    clock, now = desk.state.clock_for(task), desk.state.clock.loop_s
    times = [since for since in (clock.shifted_s, clock.placed_s) if since is not None]
    return bool(times) and now - max(times) < desk.inputs.policy.stay.role_s


def _shifted(desk: Desk, shift: Shift, net: float, others: tuple[Pending, ...]) -> Outcome:
    """Put the shifted placement into the plan, charged with its own cheap switch."""
    tasks = tuple(
        replace(task, restart_s=shift.switch_s) if task.id == shift.task else task
        for task in desk.problem.tasks
    )
    problem = replace(desk.problem, tasks=tasks)
    market = market_of(problem)
    prices = prices_of(market, dict(desk.state.prices))
    as_it_is = plan_of(market, kept_choice(market), prices, {})
    if as_it_is is None:
        return Outcome(None, counted=others)
    running = tuple(
        replace(
            each,
            configuration=shift.configuration,
            roles=shift.roles,
            normalised=_rate(each, shift),
            moved=True,
        )
        if each.task == shift.task
        else each
        for each in as_it_is.running
    )
    plan = Plan(running, as_it_is.queued, certificate(market, running, prices))
    if shift.direction.startswith("join") and violations_of(problem, plan):
        return Outcome(None, counted=others)  # its node has no cores or memory left: that is the solver's
    require_sound(problem, plan)
    gpus = len(next(each for each in running if each.task == shift.task).gpus)
    worth, move = _shift_move(desk, shift, gpus)
    decision = Decision(
        Rung.ELASTIC,
        "elastic",
        f"{shift.task} {shift.direction}: {shift.why}; a step takes {shift.before_s:.4g} s, then "
        f"{shift.after_s:.4g} s",
        (move,),
        move.worth,
        worth * net,
        move.cost,
        running=desk.running,
        plan=plan,
        notes=_pool_notes(desk, shift),
    )
    return Outcome(decision, counted=others, problem=problem)


def _shift_move(desk: Desk, shift: Shift, gpus: int) -> tuple[float, Move]:
    """Give the task's worth as it is, and what the shift to so many GPUs brings and costs."""
    worth = next(
        float(task.worth[task.kept])
        for task in desk.market.tasks
        if task.id == shift.task and task.kept is not None
    )
    held = {gpu for role in _held(desk, shift.task).roles for replica in role.replicas for gpu in replica}
    factor = shift.before_s / shift.after_s
    cost = worth * factor * shift.switch_s / desk.problem.horizon_s
    gain = worth * (factor - 1.0)
    return worth, Move(shift.task, "shift", len(held), gpus, gain, 0.0, cost, shift.switch_s, shift.direction)


def _pool_notes(desk: Desk, shift: Shift) -> tuple[str, ...]:
    """Say how many GPUs of the task are core and how many elastic, where that can be told."""
    sizes = pools_of(desk.problem, _held(desk, shift.task), desk.inputs.policy.elastic.tasks[shift.task])
    if isinstance(sizes, str):
        return ()
    return (
        f"{shift.task}: {sizes.training_gpus} GPUs always train, {sizes.rollout_gpus} always roll out, "
        f"{sizes.elastic_gpus} are elastic in units of {sizes.unit_gpus}",
    )


def _held(desk: Desk, task: str) -> IncumbentTask:
    return next(each for each in desk.problem.running if each.task == task)


def _rate(each: RunningTask, shift: Shift) -> float:
    return each.normalised * each.configuration.step_time_s.value / shift.configuration.step_time_s.value


# ---------------------------------------------------------------- roles and tasks


def tasks_and_roles(desk: Desk) -> Outcome:
    """Weigh a new choice over all tasks, and beside it new roles for tasks within their own GPUs."""
    policy, running = desk.inputs.policy, desk.running
    known = prices_of(desk.market, dict(desk.state.prices)) if desk.state.prices else None
    slack = policy.rule.keep_within * max(running, 1e-9)
    if known is not None:
        bound = value_bound(desk.market, desk.values, known)
        if bound <= running + slack and not left_waiting(desk):
            return keep(desk, "bound", _proven(running, bound), pending=(), bound=bound)
    found = choose(desk.market, desk.values, desk.freedom(), policy.rule.keep_within, known)
    prices = prices_by_name(desk, found)
    asked = directions(desk.market, found.chosen)
    if not asked or found.value <= running + 1e-9:
        could = value_bound(desk.market, desk.values, found.prices) > running + slack
        orders = _wanted_orders(desk) if could else ()
        why = _proven(running, found.bound) if not desk.held else _held_back(desk, running, found.bound)
        return keep(desk, "best", why, pending=(), bound=found.bound, prices=prices, orders=orders)
    whole = weigh(desk.market, found.chosen, desk.values, desk.doubts, policy.trust.confidence)
    considered: tuple[Considered, ...] = (Considered(Rung.TASKS, whole.net, whole.moves, "weighed"),)
    narrow = replace(desk, banned=_beyond_own_gpus(desk))
    inside = choose(desk.market, desk.values, narrow.freedom(), policy.rule.keep_within, found.prices)
    roles = weigh(desk.market, inside.chosen, desk.values, desk.doubts, policy.trust.confidence)
    if roles.moves:
        considered = (Considered(Rung.ROLES, roles.net, roles.moves, "weighed"), *considered)
    if roles.moves and roles.net >= policy.rule.sufficient_share * whole.net:
        asked = directions(desk.market, inside.chosen)
        return _ripened(narrow, Rung.ROLES, inside, asked, considered, prices)
    return _ripened(desk, Rung.TASKS, found, asked, considered, prices)


def _beyond_own_gpus(desk: Desk) -> dict[int, frozenset[int]]:
    """Ban what takes a task beyond the GPUs it has, in number or class; what waits goes on waiting."""
    classes = {
        held.task: {desk.problem.cluster.gpus[gpu].gpu_class for role in held.roles for gpus in role.replicas
                    for gpu in gpus if gpu in desk.problem.cluster.gpus}
        for held in desk.problem.running
    }  # fmt: skip
    banned = {}
    for t, task in enumerate(desk.market.tasks):
        drafts = task.priced.table.drafts
        own = classes.get(task.id, set())
        outside = {
            c
            for c in range(len(task.worth) - task.held)
            if task.gpus[c] > task.held_gpus or not {name for name, _, _ in drafts[c].blocks} <= own
        }
        banned[t] = frozenset(outside) | desk.banned.get(t, frozenset())
    return banned


def _ripened(
    desk: Desk,
    rung: Rung,
    found: Proposal,
    asked: Mapping[int, str],
    considered: tuple[Considered, ...],
    prices: tuple[tuple[str, float], ...],
) -> Outcome:
    """Leave out what has not been asked for often enough, then what is beyond the caps."""
    policy = desk.inputs.policy
    pending = counted(desk.state.pending, desk.market, asked)
    looks = {each.task: each.looks for each in pending}
    names = {t: desk.market.tasks[t].id for t in asked}
    at_once = bool(left_waiting(desk) & {names[t] for t, way in asked.items() if way == "start"})
    unripe = frozenset(
        t for t, way in asked.items() if not at_once and looks[names[t]] < looks_needed(way, policy.rule)
    )
    if unripe == frozenset(asked):
        often = max(looks.values())
        why = f"{len(asked)} tasks are asked to change, for {often} looks in a row so far: not often enough"
        return keep(
            desk, "looks", why, pending=pending, bound=found.bound, prices=prices, considered=considered
        )
    frozen = unripe | _others(desk, asked) if unripe else frozenset()
    if frozen:
        found = choose(desk.market, desk.values, desk.freedom(frozen), policy.rule.keep_within, found.prices)
    within = _capped(desk, found, frozen)
    if within is None:
        what = "what has been asked for often enough" if unripe else "what the caps allow at once"
        why = f"{what} does not pay without the rest"
        return keep(
            desk, "looks" if unripe else "caps", why, pending=pending, prices=prices, considered=considered
        )
    found, weighed = within
    back = _way_back(desk, found)
    if back:
        why = f"after the change {', '.join(back)} would ask for the way back"
        return keep(desk, "way-back", why, pending=pending, prices=prices, considered=considered)
    why = (
        f"{len(weighed.moves)} changes bring {weighed.gain:+.4g} of {desk.running:.4g} fair shares, at least "
        f"{weighed.net:+.4g} after doubt, switch cost and threshold"
    )
    taken = (*considered, Considered(rung, weighed.net, weighed.moves, "adopted"))
    done = adopt(desk, rung, "gain", why, found, found.chosen, weighed, taken)
    if done is None:
        why = "the blocks of the better choice fit in number, but on no nodes"
        return keep(desk, "unplaceable", why, pending=pending, prices=prices, considered=considered)
    return done


def _others(desk: Desk, asked: Mapping[int, str]) -> frozenset[int]:
    """List by number the tasks nobody asked to change: leaving some out must not bring in new ones."""
    return frozenset(range(len(desk.market.tasks))) - frozenset(asked)


def _capped(desk: Desk, found: Proposal, frozen: frozenset[int]) -> tuple[Proposal, Weighed] | None:
    """Leave out the changes that bring least until the rest is within the caps; None when none is left."""
    policy = desk.inputs.policy
    broken = frozenset(task.id for task in desk.market.tasks if task.broken)
    for _ in range(16):
        weighed = weigh(desk.market, found.chosen, desk.values, desk.doubts, policy.trust.confidence)
        if not weighed.moves or weighed.net <= 0:
            return None
        if over_caps(desk.problem, weighed.moves, policy.caps, broken) is None:
            return found, weighed
        numbers = {task.id: t for t, task in enumerate(desk.market.tasks)}
        changed = {numbers[move.task] for move in weighed.moves if move.action != "start"}
        least = sorted(changed, key=lambda t: (float(desk.values[t].max(initial=0.0)), t))
        frozen |= frozenset(least[: max(1, (len(least) - policy.caps.disturbed_tasks + 1) // 2)])
        frozen |= _others(desk, dict.fromkeys((numbers[move.task] for move in weighed.moves), ""))
        found = choose(desk.market, desk.values, desk.freedom(frozen), policy.rule.keep_within, found.prices)
    return None


def _way_back(desk: Desk, found: Proposal) -> list[str]:
    """Name tasks that would go back at once, were the change made and all clocks run out.

    Values are charged against what is kept then: a configuration is worth going back to only if it beats the
    new one by switch, doubt and threshold.
    """
    rule = desk.inputs.policy.rule
    values = []
    now = kept_choice(desk.market)
    for t, task in enumerate(desk.market.tasks):
        value = np.array(desk.values[t])
        new, old = found.chosen.get(t), now.get(t)
        if new != old and new is not None:
            value[new] = task.worth[new]
            if old is not None:
                value[old] = task.worth[old] * (
                    1.0 - rule.gain_up - task.priced.task.restart_s / desk.problem.horizon_s
                )
        elif new is None and old is not None:
            value[old] = task.worth[old] * (1.0 - rule.gain_down)
        values.append(value)
    then = sum(float(values[t][c]) for t, c in found.chosen.items())
    back = {**found.chosen, **{t: now[t] for t in now if found.chosen.get(t) != now[t]}}
    for t in [t for t in found.chosen if t not in now]:
        back.pop(t)
    if sum(float(values[t][c]) for t, c in back.items()) > then + 1e-12:
        return [desk.market.tasks[t].id for t in sorted(now) if found.chosen.get(t) != now[t]]
    return []


def _proven(running: float, bound: float) -> str:
    return f"what runs is worth {running:.6g}, and no change is worth more than {bound:.6g} after its cost"


def _held_back(desk: Desk, running: float, bound: float) -> str:
    first = next(iter(desk.held.values()))
    return f"{_proven(running, bound)} while {len(desk.held)} tasks must stay ({first.why})"


def _wanted_orders(desk: Desk) -> tuple[str, ...]:
    """Ask for checkpoints of tasks that would otherwise be moved: only where prices say it could pay."""
    orders = []
    for held in desk.held.values():
        if held.order is not None and held.code == "checkpoint":
            orders.append(held.order)
    return tuple(sorted(orders))
