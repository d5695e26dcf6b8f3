"""Alternate between the master problem and placement: choices that cannot be placed are cut.

A choice that cannot be placed is reduced to the smallest set of tasks that still cannot, and that
set (with everything that needs even more) is forbidden. A choice that nobody could place in time is
passed over too, but that proves nothing: from then on there is no bound, and nothing is infeasible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from libra_plan.planner.optimize.assignment import UndecidedError
from libra_plan.planner.optimize.backends import MasterResult
from libra_plan.planner.optimize.base import SolveParams, SolverWork
from libra_plan.planner.optimize.constraints import Choice, Constraint, cut
from libra_plan.planner.optimize.objective import TaskCandidates
from libra_plan.planner.optimize.placement import TaskPlacement, in_the_way, place
from libra_plan.planner.optimize.restricted_master import Restriction
from libra_plan.planner.problem import Problem

__all__ = ["Budget", "Placed", "Search"]

_MOST_GIVING_WAY = 30  # times that tasks which keep GPUs in the way of others are moved
_EASY_S = 0.05  # for one more task beside others, when a baseline is placed task by task


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds left of a limit: by a clock the caller gives, and of the solvers' deterministic work."""

    clock: Callable[[], float]
    ends: float
    work: SolverWork
    work_ends_s: float

    @classmethod
    def of(cls, seconds: float, clock: Callable[[], float], work: SolverWork) -> Budget:
        """Start a budget now."""
        return cls(clock, clock() + seconds, work, work.done_s + seconds)

    def part(self, parts: int) -> Budget:
        """Start a budget of an equal part of what is left."""
        work_ends_s = self.work.done_s + self.work_left_s / parts
        return Budget(self.clock, self.clock() + self.left_s / parts, self.work, work_ends_s)

    @property
    def work_left_s(self) -> float:
        """Return the deterministic seconds left, never below a hundredth."""
        return max(0.01, self.work_ends_s - self.work.done_s)

    @property
    def left_s(self) -> float:
        """Return the seconds left, never below a hundredth: every step may at least try its hint."""
        return max(0.01, self.ends - self.clock())

    @property
    def spent(self) -> bool:
        """Return whether the limit has passed."""
        return self.clock() >= self.ends


@dataclass(frozen=True, slots=True)
class Placed:
    """A choice that has been placed."""

    choice: Choice
    placements: dict[int, TaskPlacement]


@dataclass(slots=True)
class Search:
    """One problem's candidates and constraints, and the cuts learned so far."""

    problem: Problem
    tasks: Sequence[TaskCandidates]
    constraints: list[Constraint]
    params: SolveParams
    budget: Budget
    restriction: Restriction | None = None
    """Set when `tasks` hold only candidates near the best; its bound covers all candidates."""
    cuts: int = 0
    doubts: int = 0
    """Cuts of choices that might have been placed, had there been more time."""
    _known: dict[tuple[tuple[int, int], ...], dict[int, TaskPlacement] | None] = field(default_factory=dict)
    _undecided: set[tuple[tuple[int, int], ...]] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        """Return whether the search must end: the limit has passed, or it was stopped."""
        if self.params.deterministic:
            return self.params.stopped or self.budget.work.done_s >= self.budget.work_ends_s
        return self.params.stopped or self.budget.spent

    def step_s(self) -> float:
        """Return the limit for one solver call: the work left when deterministic, else the time left.

        Deterministic limits count solver work, so they must not depend on the clock.
        """
        return self.budget.work_left_s if self.params.deterministic else self.budget.left_s

    def place(self, choice: Choice, limit_s: float = math.inf) -> Placed | None:
        """Place a choice and remember the result; None when it cannot be placed, or not in time."""
        key = tuple(sorted(choice.items()))
        if key not in self._known:
            limit_s = min(limit_s, self.step_s())
            try:
                self._known[key] = place(self.problem, self.tasks, choice, self.params, limit_s=limit_s)
            except UndecidedError:
                self._undecided.add(key)
                return None
        placements = self._known[key]
        return None if placements is None else Placed(dict(key), placements)

    def is_undecided(self, choice: Choice) -> bool:
        """Return whether only a lack of time kept a choice from being placed."""
        key = tuple(sorted(choice.items()))
        return key in self._undecided and key not in self._known

    def place_most(self, choice: Choice, settled: int = 0) -> Placed | None:
        """Place a choice, or as many of its tasks as are easily placed, those of most value per GPU first.

        The first `settled` tasks always take part.
        """
        placed = self.place(choice, self.step_s() / 4)
        if placed is not None or len(choice) <= max(1, settled):
            return placed
        entries = {t: self.tasks[t].candidates[c] for t, c in choice.items()}
        order = sorted(
            entries, key=lambda t: (t >= settled, -entries[t].value / entries[t].configuration.gpus, t)
        )
        kept: Choice = {}
        for t in order:
            more = self.place(kept | {t: choice[t]}, 0.0 if self.ended else _EASY_S)
            if more is not None:
                placed, kept = more, more.choice
            elif t < settled:
                return None
        return placed

    def until_placed(self, choose: Callable[[], MasterResult]) -> tuple[MasterResult, Placed | None]:
        """Find the best choice, cut it when it cannot be placed, and repeat."""
        while True:
            result = self.believed(choose())
            if result.choice is None:
                return result, None
            placed = self.place(result.choice)
            if placed is None and self.restriction is not None:
                placed = self.with_more_moves(result.choice)
            if placed is not None:
                return result, placed
            if self.is_undecided(result.choice):
                conflict = result.choice
                self.doubts += 1
            else:
                conflict = self._smallest_conflict(result.choice)
            self.constraints.append(cut(self.tasks, conflict, self.problem.cluster))
            self.cuts += 1
            if self.ended:
                return MasterResult(None, result.bound, optimal=False), None

    def with_more_moves(self, choice: Choice) -> Placed | None:
        """Place a choice in which tasks that keep GPUs in the way of others move, too."""
        changed = dict(choice)
        for _ in range(_MOST_GIVING_WAY):
            moves = {t: twin for t, c in changed.items() if (twin := self._moved_twin(t, c)) is not None}
            costs = {
                t: self.tasks[t].candidates[changed[t]].value - self.tasks[t].candidates[twin].value
                for t, twin in moves.items()
            }
            way = in_the_way(self.problem, self.tasks, changed, costs)
            if not way or self.ended:
                return None
            changed |= {t: moves[t] for t in way}
            placed = self.place(changed)
            if placed is not None:
                return placed
        return None

    def _moved_twin(self, t: int, c: int) -> int | None:
        """Find the best candidate that is the same size elsewhere; None where the task keeps nothing."""
        entries = self.tasks[t].candidates
        if entries[c].held is None:
            return None
        blocks = entries[c].configuration.blocks
        same = [u for u, e in enumerate(entries) if e.held is None and e.configuration.blocks == blocks]
        return max(same, key=lambda u: entries[u].value, default=None)

    def believed(self, result: MasterResult) -> MasterResult:
        """Remove from a result what is not proven: a dropped configuration might save a cut choice."""
        if self.doubts or (self.cuts and not all(each.exact for each in self.tasks)):
            # a dropped configuration might be placed where the one that was cut for it cannot
            return replace(result, bound=math.inf, optimal=False, infeasible=False)
        return result

    def _smallest_conflict(self, choice: Choice) -> Choice:
        """Drop tasks from an unplaceable choice as long as it stays unplaceable."""
        conflict = dict(choice)
        for t in list(conflict):
            fewer = {other: c for other, c in conflict.items() if other != t}
            if self.ended:
                break
            if fewer and self.place(fewer) is None and not self.is_undecided(fewer):
                conflict = fewer
        return conflict
