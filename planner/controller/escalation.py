"""The rungs that place tasks: what is urgent, roles within their task's GPUs, tasks.

Each rung returns a `RungResult`: its decision, or None with what it counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.planner.controller.choose import (
    AllowedChanges,
    Comparison,
    Proposal,
    actions,
    choose,
    kept_choice,
    place_choice,
)
from libra_plan.planner.controller.configuration_values import Floats, charged, prices_of, value_bound
from libra_plan.planner.controller.events import told, urgent_tasks
from libra_plan.planner.controller.hysteresis import (
    CAP_ROUNDS,
    LEAST_GAIN,
    count_looks,
    looks_needed,
    over_caps,
)
from libra_plan.planner.controller.snapshot import Snapshot
from libra_plan.planner.controller.state import Considered, Decision, Move, Pending, Rung
from libra_plan.planner.plan import Plan, QueuedTask
from libra_plan.planner.problem import Problem
from libra_plan.planner.verify import violations_of
from libra_plan.profiles.counting import counted

__all__ = [
    "RungResult",
    "change",
    "keep",
    "movable",
    "reason_of",
    "require_verified",
    "tasks_and_roles",
    "urgent",
]


@dataclass(frozen=True)
class RungResult:
    """A decision (None: this rung has none), and what the next state takes from it.

    `pending` None: as before. `counted` are looks that asked for batch and elastic steps. `problem` is
    what the plan answers, None: the snapshot's.
    """

    decision: Decision | None
    pending: tuple[Pending, ...] | None = None
    prices: tuple[tuple[str, float], ...] | None = None
    counted: tuple[Pending, ...] = ()
    problem: Problem | None = None


def keep(
    snapshot: Snapshot,
    rule: str,
    why: str,
    *,
    pending: tuple[Pending, ...] | None = None,
    found: Proposal | None = None,
    bound: float | None = None,
    considered: tuple[Considered, ...] = (),
    orders: tuple[str, ...] = (),
) -> RungResult:
    """Decide that everything stays as it is; the prices of a search are remembered."""
    decision = Decision(
        Rung.KEEP,
        rule,
        why,
        running=snapshot.running,
        bound=bound,
        considered=considered,
        orders=orders,
    )
    prices = None if found is None else _by_name(snapshot, found)
    return RungResult(decision, pending, prices, snapshot.state.batches)


def _by_name(snapshot: Snapshot, found: Proposal) -> tuple[tuple[str, float], ...]:
    return tuple(zip(snapshot.table.master.names, map(float, found.prices), strict=True))


def require_verified(problem: Problem, plan: Plan) -> None:
    """Check a plan with the verifier, which shares no code with the search, before it is adopted."""
    violations = violations_of(problem, plan)
    if violations:
        listed = "; ".join(str(each) for each in violations[:5])
        raise RuntimeError(f"the plan breaks its own problem, a defect of ours: {listed}")


def change(
    snapshot: Snapshot,
    rung: Rung,
    rule: str,
    why: str,
    plan: Plan,
    comparison: Comparison,
    *,
    bound: float,
    found: Proposal | None = None,
    problem: Problem | None = None,
    pending: tuple[Pending, ...] | None = (),
    considered: tuple[Considered, ...] = (),
    orders: tuple[str, ...] = (),
) -> RungResult:
    """Decide for a plan of `problem` (None: the snapshot's), once the verifier has accepted it."""
    require_verified(problem or snapshot.problem, plan)
    decision = Decision(
        rung,
        rule,
        why,
        comparison.moves,
        comparison.gain,
        comparison.net,
        comparison.cost,
        running=snapshot.running,
        bound=bound,
        considered=considered,
        orders=orders,
        plan=plan,
    )
    prices = None if found is None else _by_name(snapshot, found)
    return RungResult(decision, pending, prices, snapshot.state.batches, problem)


# ---------------------------------------------------------------- urgent


def urgent(snapshot: Snapshot) -> RungResult | None:
    """Place what must be placed now on what the others leave free; None when nothing is urgent.

    The others stay where they are. For what then still waits, others may be moved by the ordinary rule,
    but on the first look.
    """
    free = movable(snapshot)
    if not free:
        return None
    table, paused = snapshot.table, snapshot.inputs.paused
    frozen = frozenset(range(len(table.tasks))) - free
    values = [
        charged(task, snapshot.problem, snapshot.policy, snapshot.rates, thresholds=t not in free)[0]
        for t, task in enumerate(table.tasks)
    ]
    found = choose(table, values, AllowedChanges(frozen, snapshot.banned), 0.0, _known_prices(snapshot))
    found = _with_more_room(snapshot, free, values, found)
    if not actions(table, found.chosen):
        return None
    waits = {
        name: QueuedTask(name, "paused", f"{name}: its user paused it; libra-plan task resume {name}")
        for name in paused
    }
    plan = place_choice(table, found.chosen, found.prices, waits)
    if plan is None:
        return keep(snapshot, "unplaceable", "what must be placed now fits in number, but on no nodes")
    orders = (why.order for t, why in snapshot.held.items() if table.tasks[t].id in paused)
    comparison = snapshot.compare(found.chosen, values)
    return change(
        snapshot,
        Rung.TASKS,
        "event",
        reason_of(snapshot),
        plan,
        comparison,
        bound=found.bound,
        found=found,
        pending=None,
        orders=tuple(filter(None, orders)),
    )


def _known_prices(snapshot: Snapshot) -> Floats | None:
    prices = snapshot.state.prices
    return prices_of(snapshot.table, dict(prices)) if prices else None


def _with_more_room(
    snapshot: Snapshot, free: frozenset[int], values: Sequence[Floats], found: Proposal
) -> Proposal:
    """Move other tasks for broken tasks that do not fit: within caps, stays and checkpoints."""
    table, policy = snapshot.table, snapshot.policy
    if all(t in found.chosen for t in free if table.tasks[t].broken):
        return found
    allowed = AllowedChanges(frozenset(snapshot.held), snapshot.banned)
    wide = choose(table, values, allowed, policy.rule.keep_within, found.prices)
    moves = snapshot.compare(wide.chosen, values).moves
    within = over_caps(snapshot.problem, moves, policy.caps, snapshot.broken) is None
    return wide if within and wide.value > found.value + LEAST_GAIN else found


def movable(snapshot: Snapshot) -> frozenset[int]:
    """Return the tasks, by number, that are broken, urgent and waiting, or to pause and safe to."""
    names, paused = urgent_tasks(snapshot.problem, snapshot.events), snapshot.inputs.paused
    found = set()
    for t, task in enumerate(snapshot.table.tasks):
        pauses = task.id in paused and bool(task.held_gpus) and t not in snapshot.held
        waits = task.id in names and not task.held_gpus and task.id not in paused
        if task.broken or pauses or waits:
            found.add(t)
    return frozenset(found)


def reason_of(snapshot: Snapshot) -> str:
    """Return what happened, in a sentence."""
    lines = [told(event) for event in snapshot.events]
    broken = [task.id for task in snapshot.table.tasks if task.broken]
    if broken:
        lines.append(f"{', '.join(broken)} cannot stay as placed")
    return "; ".join(lines[:6]) + (f" and {len(lines) - 6} more" if len(lines) > 6 else "")


# ---------------------------------------------------------------- roles and tasks


def tasks_and_roles(snapshot: Snapshot) -> RungResult:
    """Compare a new choice over all tasks with new roles for tasks within their own GPUs.

    Before any search, the prices of the last one may prove that no change can pay.
    """
    policy, running, known = snapshot.policy, snapshot.running, _known_prices(snapshot)
    slack = policy.rule.keep_within * max(running, 1e-9)
    if known is not None and not snapshot.urgent_waiting:
        bound = value_bound(snapshot.table, snapshot.charged, known)
        if bound <= running + slack:
            return keep(snapshot, "bound", _proven(snapshot, bound), pending=(), bound=bound)
    found = snapshot.choose(known)
    if not actions(snapshot.table, found.chosen) or found.value <= running + LEAST_GAIN:
        could = value_bound(snapshot.table, snapshot.charged, found.prices) > running + slack
        asked = (each.order for each in snapshot.held.values() if each.code == "checkpoint" and each.order)
        orders = tuple(sorted(asked)) if could else ()
        why = _proven(snapshot, found.bound)
        if snapshot.held:
            first = next(iter(snapshot.held.values()))
            why += f" while {counted(len(snapshot.held), 'task')} must stay ({first.why})"
        return keep(snapshot, "best", why, pending=(), bound=found.bound, found=found, orders=orders)
    tasks = snapshot.compare(found.chosen)
    considered: tuple[Considered, ...] = (Considered(Rung.TASKS, tasks.net, tasks.moves, "weighed"),)
    narrow = replace(snapshot, banned=_beyond_own_gpus(snapshot))
    inside = narrow.choose(found.prices)
    roles = snapshot.compare(inside.chosen)
    if roles.moves:
        considered = (Considered(Rung.ROLES, roles.net, roles.moves, "weighed"), *considered)
        if roles.net >= policy.rule.sufficient_share * tasks.net:
            return _ripened(narrow, Rung.ROLES, inside, considered, found)
    return _ripened(snapshot, Rung.TASKS, found, considered, found)


def _proven(snapshot: Snapshot, bound: float) -> str:
    return (
        f"what runs is worth {snapshot.running:.6g}, and no change is worth more than {bound:.6g} "
        "after its cost"
    )


def _beyond_own_gpus(snapshot: Snapshot) -> dict[int, frozenset[int]]:
    """Ban what takes a task beyond the GPUs that it has, in number or class; what waits goes on waiting."""
    gpus = snapshot.problem.cluster.gpus
    classes = {
        held.task: {gpus[g].gpu_class for role in held.roles for r in role.replicas for g in r if g in gpus}
        for held in snapshot.problem.running
    }
    banned = {}
    for t, task in enumerate(snapshot.table.tasks):
        table, own = task.priced.table, classes.get(task.id, set())
        outside = {
            c
            for c in range(task.moved)
            if task.gpus[c] > task.held_gpus or not {name for name, _, _ in table.blocks(c)} <= own
        }
        banned[t] = frozenset(outside) | snapshot.banned.get(t, frozenset())
    return banned


def _ripened(
    snapshot: Snapshot, rung: Rung, found: Proposal, considered: tuple[Considered, ...], first: Proposal
) -> RungResult:
    """Remove changes that were not proposed often enough, then those beyond the caps.

    The prices of the `first` search are remembered when nothing changes.
    """
    table = snapshot.table
    asked = actions(table, found.chosen)
    wishes = ((table.tasks[t].id, action) for t, action in asked.items())
    pending = count_looks(snapshot.state.pending, wishes)
    unripe = _unripe(snapshot, asked, pending)

    def kept(rule: str, why: str, bound: float | None = None) -> RungResult:
        return keep(snapshot, rule, why, pending=pending, bound=bound, found=first, considered=considered)

    if unripe == frozenset(asked):
        often = max(each.looks for each in pending)
        why = (
            f"{counted(len(asked), 'task')} asked to change, for {counted(often, 'look')} in a row so far: "
            "not often enough"
        )
        return kept("looks", why, found.bound)
    frozen: frozenset[int] = frozenset()
    if unripe:
        frozen = unripe | _others(snapshot, asked)
        found = snapshot.choose(found.prices, frozen)
    within = _within_caps(snapshot, found, frozen)
    if within is None:
        what = "what has been asked for often enough" if unripe else "what the caps allow at once"
        return kept("looks" if unripe else "caps", f"{what} does not pay without the rest")
    found, comparison = within
    back = _way_back(snapshot, found)
    if back:
        return kept("way-back", f"after the change {', '.join(back)} would ask for the way back")
    plan = place_choice(table, found.chosen, found.prices, {})
    if plan is None:
        return kept("unplaceable", "the blocks of the better choice fit in number, but on no nodes")
    why = (
        f"{len(comparison.moves)} changes bring {comparison.gain:+.4g} of {snapshot.running:.4g} fair "
        f"shares, at least {comparison.net:+.4g} after doubt, switch cost and threshold"
    )
    considered = (*considered, Considered(rung, comparison.net, comparison.moves, "adopted"))
    return change(
        snapshot,
        rung,
        "gain",
        why,
        plan,
        comparison,
        bound=found.bound,
        found=found,
        considered=considered,
    )


def _unripe(snapshot: Snapshot, asked: Mapping[int, str], pending: tuple[Pending, ...]) -> frozenset[int]:
    """Return the tasks whose changes were not proposed often enough; none if an urgent task would start."""
    names = {t: snapshot.table.tasks[t].id for t in asked}
    if snapshot.urgent_waiting & {names[t] for t, action in asked.items() if action == "start"}:
        return frozenset()
    looks, rule = {each.task: each.looks for each in pending}, snapshot.policy.rule
    return frozenset(t for t, action in asked.items() if looks[names[t]] < looks_needed(action, rule))


def _others(snapshot: Snapshot, asked: Mapping[int, str]) -> frozenset[int]:
    """Return the tasks without a proposed change: removing some changes must not add new ones."""
    return frozenset(range(len(snapshot.table.tasks))) - frozenset(asked)


def _within_caps(
    snapshot: Snapshot, found: Proposal, frozen: frozenset[int]
) -> tuple[Proposal, Comparison] | None:
    """Remove the changes with the least gain until the rest is within the caps; None when none is left."""
    caps, numbers = snapshot.policy.caps, {task.id: t for t, task in enumerate(snapshot.table.tasks)}
    for _ in range(CAP_ROUNDS):
        comparison = snapshot.compare(found.chosen)
        moves: tuple[Move, ...] = comparison.moves
        if not moves or comparison.net <= 0:
            return None
        if over_caps(snapshot.problem, moves, caps, snapshot.broken) is None:
            return found, comparison
        changed = {numbers[move.task] for move in moves if move.action != "start"}
        least = sorted(changed, key=lambda t: (float(snapshot.charged[t].max(initial=0.0)), t))
        frozen |= frozenset(least[: max(1, (len(least) - caps.disturbed_tasks + 1) // 2)])
        frozen |= _others(snapshot, {numbers[move.task]: move.action for move in moves})
        found = snapshot.choose(found.prices, frozen)
    return None


def _way_back(snapshot: Snapshot, found: Proposal) -> list[str]:
    """Return the tasks that would change back at once if the change were made and no task had to stay.

    Values are charged against the new plan: a task changes back only if that pays for switch, error and
    threshold.
    """
    rule, now = snapshot.policy.rule, kept_choice(snapshot.table)
    before = after = 0.0
    for t, task in enumerate(snapshot.table.tasks):
        new, old = found.chosen.get(t), now.get(t)
        value = np.array(snapshot.charged[t])
        if new != old and new is not None:
            value[new] = task.values[new]
            if old is not None:
                switch = task.priced.task.restart_s / snapshot.problem.horizon_s
                value[old] = task.values[old] * (1.0 - rule.gain_up - switch)
        elif new is None and old is not None:
            value[old] = task.values[old] * (1.0 - rule.gain_down)
        after += 0.0 if new is None else float(value[new])
        before += 0.0 if old is None else float(value[old])
    if before <= after + 1e-12:
        return []
    return [snapshot.table.tasks[t].id for t in sorted(now) if found.chosen.get(t) != now[t]]
