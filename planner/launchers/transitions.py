"""Order the steps from a parent manifest to a new one: what frees GPUs goes before what takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heapify, heappop, heappush
from typing import Literal

from libra_plan.planner.launchers.manifest import Transition

__all__ = ["Holding", "transitions_between"]

Action = Literal["start", "stop", "resize", "move", "keep"]
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Holding:
    """A task as the hand-over sees it: the GPUs it had and will have (None: not running there)."""

    task: str
    before: frozenset[str] | None
    after: frozenset[str] | None
    unchanged: bool = False

    @property
    def action(self) -> Action:
        """Name the step that takes the task from before to after."""
        if self.after is None:
            return "stop"
        if self.before is None:
            return "start"
        if self.unchanged:
            return "keep"
        return "move" if self.growth == 0 else "resize"

    @property
    def growth(self) -> int:
        """Count the GPUs it gains; negative when it gives some back."""
        return len(self.after or _NONE) - len(self.before or _NONE)

    @cached_property
    def taken(self) -> frozenset[str]:
        """Give the GPUs it takes from others or from the free ones."""
        return (self.after or _NONE) - (self.before or _NONE)

    @property
    def freed(self) -> frozenset[str]:
        """Give the GPUs it leaves."""
        return (self.before or _NONE) - (self.after or _NONE)


def transitions_between(holdings: Iterable[Holding]) -> tuple[Transition, ...]:
    """List the steps in an order in which no GPU ever has two holders that do not share it.

    Stops and shrinks go as early as they can, then moves, then growth and starts. A step is ready
    when no task that still waits holds a GPU it takes. When none is ready (tasks want each other's
    GPUs), the first of them is stopped early and started once its new GPUs are free.
    """
    ordered = sorted(holdings, key=_rank)
    waiting = [holding for holding in ordered if holding.action != "keep"]
    held = Counter(gpu for one in waiting for gpu in one.before or _NONE)  # several tasks may share one
    done: list[Transition] = []
    freed_by: dict[str, set[str]] = {}  # GPU -> the steps that freed it
    stopped_by: dict[str, str] = {  # task -> its stop, where it starts again
        one.task: _id(one) for one in waiting if one.action == "stop"
    }
    while waiting:
        ready = next((one for one in waiting if held.keys().isdisjoint(one.taken)), None)
        if ready is None:
            ready = _split(waiting)
            stopped_by[ready.task] = _id(ready)
        else:
            waiting.remove(ready)
        needed = set().union(*(freed_by.get(gpu, _NONE) for gpu in ready.taken))
        if ready.action == "start":
            needed.add(stopped_by.get(ready.task, ""))
        done.append(_step(ready, tuple(step.id for step in done if step.id in needed)))
        held -= Counter(ready.before or _NONE)
        for gpu in ready.freed:
            freed_by.setdefault(gpu, set()).add(_id(ready))
    kept = (_step(holding, ()) for holding in ordered if holding.action == "keep")
    return (*_earliest_release(done), *kept)


def _split(waiting: list[Holding]) -> Holding:
    """Take the stop out of the first task that holds GPUs, and leave its start waiting, last."""
    holding = next(one for one in waiting if one.before)
    waiting.remove(holding)
    waiting.append(replace(holding, before=None))
    return replace(holding, after=None)


def _earliest_release(steps: list[Transition]) -> list[Transition]:
    """Reorder steps within what `after` allows, so that those that free GPUs are not held up."""
    missing = {step.id: set(step.after) for step in steps}
    followers: dict[str, list[int]] = {step.id: [] for step in steps}
    for number, step in enumerate(steps):
        for earlier in step.after:
            followers[earlier].append(number)
    change = [step.gpus_after - step.gpus_before for step in steps]
    ready = [(change[number], number) for number, step in enumerate(steps) if not step.after]
    heapify(ready)
    ordered = []
    while ready:
        step = steps[heappop(ready)[1]]
        ordered.append(step)
        for number in followers[step.id]:
            missing[steps[number].id].discard(step.id)
            if not missing[steps[number].id]:
                heappush(ready, (change[number], number))
    return ordered


def _rank(holding: Holding) -> tuple[int, int]:
    order = {"stop": 0, "resize": 1 if holding.growth < 0 else 3, "move": 2, "start": 4, "keep": 5}
    return order[holding.action], holding.growth


def _id(holding: Holding) -> str:
    return f"{holding.action}:{holding.task}"


def _step(holding: Holding, after: tuple[str, ...]) -> Transition:
    return Transition(
        id=_id(holding),
        task=holding.task,
        action=holding.action,
        gpus_before=len(holding.before or _NONE),
        gpus_after=len(holding.after or _NONE),
        after=after,
    )
