"""The protocol of policies, their result with its proof, and steps that several of them use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from libra_plan.planner.optimize.backends import MasterResult, maximise
from libra_plan.planner.optimize.constraints import At, Choice, Constraint
from libra_plan.planner.optimize.lp_bound import LpBound, lp_bound
from libra_plan.planner.optimize.master import Placed, Search
from libra_plan.planner.plan import Pass
from libra_plan.planner.problem import Problem

__all__ = [
    "BestRates",
    "PlanPolicy",
    "PolicyResult",
    "best_choice",
    "most",
    "relaxation",
    "report_progress",
]

_LP = 0.5  # of the time left may go to the LP relaxation


@dataclass(frozen=True, slots=True)
class BestRates:
    """The best rate a task could have, steps/s: alone, and beside the deadlines kept (None: not known)."""

    alone: float | None
    beside: float | None


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """A placed choice with what is proven about the policy's objective.

    `promises` are constraints that later passes must keep; `bounds` are named, and `duals` prove the one
    named `lp`. `missed` maps the number of each task whose deadline cannot be kept to the least relaxation;
    `floors` maps each team to its value within its quota.
    """

    placed: Placed | None
    bounds: dict[str, float]
    promises: tuple[Constraint, ...] = ()
    infeasible: bool = False
    passes: tuple[Pass, ...] = ()
    missed: Mapping[int, BestRates] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    duals: Mapping[str, float] = field(default_factory=dict)


class PlanPolicy(Protocol):
    """A policy. Its methods are pure: the state is in the search."""

    def parts(self, problem: Problem) -> Sequence[frozenset[str]]:
        """Split the tasks' ids into parts planned one after the other, each beside those before it."""

    def plan(self, search: Search, hint: Choice | None) -> PolicyResult:
        """Find the policy's best choice; rows it adds to the search hold for all later passes."""

    def objective(self, search: Search, choice: Choice) -> float:
        """Return the objective in the certificate."""

    def rank(self, search: Search, choice: Choice) -> tuple[float, ...]:
        """Return the key by which choices are compared; larger is better."""


def best_choice(
    search: Search,
    values: Mapping[At, float],
    promises: Sequence[Constraint],
    hint: Choice | None,
    known_bound: float | None = None,
    reported: bool = False,
    limit_s: float = math.inf,
) -> MasterResult:
    """Find the choice of the largest value that keeps all constraints and promises."""
    return maximise(
        search.tasks,
        [*search.constraints, *promises],
        values,
        search.params,
        limit_s=min(limit_s, search.step_s()),
        hint=hint,
        known_bound=known_bound,
        reported=reported,
    )


def report_progress(search: Search, objective: float | None, bound: float | None) -> None:
    """Report progress to the interrupter."""
    if search.params.interrupter is not None:
        search.params.interrupter.report(objective, bound)


def relaxation(search: Search, worst: Sequence[int] | None = None) -> LpBound | None:
    """Bound the sum of values, or the least throughput of some tasks, by the LP; None without an answer."""
    limit_s = math.inf if search.params.deterministic else _LP * search.step_s()
    found = lp_bound(search.tasks, search.constraints, worst, limit_s)
    report_progress(search, None, None if found is None else found.value)
    return found


def most(
    search: Search, good: Mapping[int, Iterable[int]], hint: Choice | None
) -> tuple[list[int], Placed | None]:
    """Find the most tasks that can run in good candidates at once, the heavier ones among equals.

    Returns their numbers and the choice that shows it, None when the search ended first.
    """
    weights = {t: search.tasks[t].task.weight for t in good}
    total = sum(weights.values())
    values = {(t, c): 1.0 + 0.5 * weights[t] / total for t, entries in good.items() for c in entries}
    if not values:
        return [], None
    _, placed = search.until_placed(lambda: best_choice(search, values, (), hint))
    if placed is None:
        return [], None
    return [t for t in good if (t, placed.choice.get(t, -1)) in values], placed
