"""When a change is ripe: the same direction on enough looks in a row, within the caps, with no way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from libra_plan.planner.controller.choose import Chosen, kept_choice
from libra_plan.planner.controller.configuration_values import Floats, Market
from libra_plan.planner.controller.decision import Move
from libra_plan.planner.controller.policy import CapPolicy, RulePolicy
from libra_plan.planner.controller.state import Pending
from libra_plan.planner.plan import Configuration
from libra_plan.planner.problem import Problem

__all__ = ["Weighed", "counted", "directions", "looks_needed", "over_caps", "weigh"]

_DOWN = frozenset({"shrink", "pause"})


def directions(market: Market, chosen: Chosen) -> dict[int, str]:
    """Name what becomes of each task that does not stay as it is."""
    now = kept_choice(market)
    found = {}
    for t, task in enumerate(market.tasks):
        new = chosen.get(t)
        if new is None:
            if task.held_gpus:
                found[t] = "pause"
        elif not task.held_gpus:
            found[t] = "start"
        elif new != now.get(t) and new < len(task.worth) - task.held:
            more = task.gpus[new] - task.held_gpus
            found[t] = "grow" if more > 0 else "shrink" if more < 0 else "move"
    return found


def looks_needed(direction: str, rule: RulePolicy) -> int:
    """Give the looks in a row a direction needs."""
    return rule.looks_down if direction in _DOWN else rule.looks_up


def counted(before: Iterable[Pending], market: Market, found: Mapping[int, str]) -> tuple[Pending, ...]:
    """Count one more look for every task that is asked for in the same direction, and begin the others."""
    looks = {(each.task, each.direction): each.looks for each in before}
    asked = [(market.tasks[t].id, direction) for t, direction in found.items()]
    return tuple(Pending(task, way, looks.get((task, way), 0) + 1) for task, way in sorted(asked))


@dataclass(frozen=True, slots=True)
class Weighed:
    """A choice put into figures: weighted fair shares over the horizon."""

    moves: tuple[Move, ...]
    gain: float
    net: float
    cost: float


def weigh(
    market: Market, chosen: Chosen, values: Sequence[Floats], doubts: Sequence[Floats], confidence: float
) -> Weighed:
    """Say what each change brings, may be wrong by and costs. `net` is what the charged values make."""
    now = kept_choice(market)
    moves = []
    net = 0.0
    for t, direction in directions(market, chosen).items():
        task, new, old = market.tasks[t], chosen.get(t), now.get(t)
        before = float(task.worth[old]) if old is not None else 0.0
        after = float(task.worth[new]) if new is not None else 0.0
        net += (float(values[t][new]) if new is not None else 0.0) - before
        switch_s = task.priced.task.restart_s if new is not None and task.held_gpus else 0.0
        moves.append(
            Move(
                task.id,
                direction,
                task.held_gpus,
                0 if new is None else int(task.gpus[new]),
                after - before,
                0.0 if new is None else confidence * float(doubts[t][new]) * after,
                after * min(1.0, switch_s / market.problem.horizon_s),
                switch_s,
                "" if new is None else form_of(task.configuration(new)),
            )
        )
    return Weighed(tuple(moves), sum(m.worth for m in moves), net, sum(m.cost for m in moves))


def form_of(configuration: Configuration) -> str:
    """Say in which forms a configuration runs: `actor 2 × tp4, rollout 4 × tp1`."""
    return ", ".join(
        f"{choice.role} {choice.option.form}"
        for phase in configuration.phases
        for pool in phase.pools
        for choice in pool.choices
    )


def over_caps(problem: Problem, moves: Sequence[Move], caps: CapPolicy, broken: frozenset[str]) -> str | None:
    """Say which cap a set of changes breaks; what is broken must move, and does not count.

    GPUs are moved when another task gets them, or their task leaves all it has. One exchange between
    two tasks may always be made, or small clusters would never change.
    """
    counted_moves = [move for move in moves if move.task not in broken]
    disturbed = [move for move in counted_moves if move.action != "start"]
    if len(disturbed) > caps.disturbed_tasks:
        return f"{len(disturbed)} tasks would be disturbed, allowed {caps.disturbed_tasks}"
    gpus = sum(
        move.gpus_after if move.action == "move" else max(0, move.gpus_after - move.gpus_before)
        for move in counted_moves
    )
    allowed = caps.moved_gpus_share * len(problem.cluster.gpus)
    if len(disturbed) > 2 and gpus > allowed:
        return f"{gpus} GPUs would be moved, allowed {allowed:.0f}"
    return None
