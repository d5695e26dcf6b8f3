"""Order the steps from a parent manifest to a new one: GPUs are freed before others take them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import Literal

from libra_plan.planner.launchers.manifest import Transition

__all__ = ["Holding", "transitions_between"]

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Holding:
    """A task as the hand-over sees it: the GPUs it had and will have (None: not running there)."""

    task: str
    before: frozenset[str] | None
    after: frozenset[str] | None
    unchanged: bool = False

    @property
    def action(self) -> Literal["start", "stop", "resize", "move", "keep"]:
        """The step that takes the task from before to after."""
        if self.after is None:
            return "stop"
        if self.before is None:
            return "start"
        if self.unchanged:
            return "keep"
        return "move" if self.growth == 0 else "resize"

    @property
    def step(self) -> str:
        """The id of that step."""
        return f"{self.action}:{self.task}"

    @property
    def growth(self) -> int:
        """The number of GPUs it gains; negative when it gives some back."""
        return len(self.after or _NONE) - len(self.before or _NONE)

    @cached_property
    def taken(self) -> frozenset[str]:
        """The GPUs it takes from others or from the free ones."""
        return (self.after or _NONE) - (self.before or _NONE)

    @property
    def freed(self) -> frozenset[str]:
        """The GPUs it leaves."""
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
    stopped_by = {one.task: one.step for one in waiting if one.action == "stop"}
    while waiting:
        ready = next((one for one in waiting if held.keys().isdisjoint(one.taken)), None)
        if ready is None:
            holding = next(one for one in waiting if one.before)
            waiting.remove(holding)
            waiting.append(replace(holding, before=None))
            ready = replace(holding, after=None)
            stopped_by[ready.task] = ready.step
        else:
            waiting.remove(ready)
        needed = set().union(*(freed_by.get(gpu, _NONE) for gpu in ready.taken))
        if ready.action == "start":
            needed.add(stopped_by.get(ready.task, ""))
        done.append(_transition(ready, tuple(step.id for step in done if step.id in needed)))
        held -= Counter(ready.before or _NONE)
        for gpu in ready.freed:
            freed_by.setdefault(gpu, set()).add(ready.step)
    kept = (_transition(holding, ()) for holding in ordered if holding.action == "keep")
    return (*_earliest_release(done), *kept)


def _earliest_release(steps: list[Transition]) -> list[Transition]:
    """Reorder steps as `after` allows, so that those that free GPUs come early."""
    numbers = {step.id: number for number, step in enumerate(steps)}
    sorter = TopologicalSorter({step.id: step.after for step in steps})
    sorter.prepare()
    ready: list[tuple[int, int]] = []
    ordered = []
    while sorter.is_active():
        for name in sorter.get_ready():
            step = steps[numbers[name]]
            heappush(ready, (step.gpus_after - step.gpus_before, numbers[name]))
        step = steps[heappop(ready)[1]]
        ordered.append(step)
        sorter.done(step.id)
    return ordered


def _rank(holding: Holding) -> tuple[int, int]:
    order = {"stop": 0, "resize": 1 if holding.growth < 0 else 3, "move": 2, "start": 4, "keep": 5}
    return order[holding.action], holding.growth


def _transition(holding: Holding, after: tuple[str, ...]) -> Transition:
    return Transition(
        id=holding.step,
        task=holding.task,
        action=holding.action,
        gpus_before=len(holding.before or _NONE),
        gpus_after=len(holding.after or _NONE),
        after=after,
    )
