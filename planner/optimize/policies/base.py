"""What every policy is: a rule that searches, an outcome with its proof, and the questions they share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from libra_plan.planner.optimize.backends import MasterResult, are_many, bound_name, maximise
from libra_plan.planner.optimize.constraints import At, Choice, Row
from libra_plan.planner.optimize.master import Placed, Search
from libra_plan.planner.plan import Pass
from libra_plan.planner.problem import Problem

__all__ = [
    "BestRates",
    "Outcome",
    "Rule",
    "ask",
    "most",
    "normalised",
    "prover",
    "report",
    "total_worth",
    "wide",
    "worths",
]


@dataclass(frozen=True, slots=True)
class BestRates:
    """The best rate a task could have, steps/s: alone, and beside the deadlines kept (None: not known)."""

    alone: float | None
    beside: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A placed choice with what is proven about the policy's objective.

    `promises` are rows that later passes must keep; `bounds` are named. `missed` maps the number of
    each task whose deadline cannot be kept to the least relaxation; `floors` maps each team to its
    worth within its quota.
    """

    placed: Placed | None
    bounds: dict[str, float]
    promises: tuple[Row, ...] = ()
    infeasible: bool = False
    passes: tuple[Pass, ...] = ()
    missed: Mapping[int, BestRates] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)


class Rule(Protocol):
    """A policy. All of it is pure: the search holds what is known, the outcome what was found."""

    def parts(self, problem: Problem) -> Sequence[frozenset[str]]:
        """Split the tasks' ids into parts planned one after the other, each beside those before it."""

    def plan(self, search: Search, hint: Choice | None) -> Outcome:
        """Find the policy's best choice; rows it adds to the search hold for all later passes."""

    def objective(self, search: Search, choice: Choice) -> float:
        """Give the number the certificate is about."""

    def rank(self, search: Search, choice: Choice) -> tuple[float, ...]:
        """Give what choices are compared by; larger is better."""


def wide(search: Search) -> bool:
    """Tell whether the master finds prices for all rows itself."""
    return are_many(search.tasks, search.params)


def prover(search: Search) -> str:
    """Name who proves the bounds of `ask`."""
    return bound_name(search.tasks, search.params)


def worths(search: Search) -> dict[At, float]:
    """Map every candidate to its worth."""
    return {
        (t, c): entry.worth for t, each in enumerate(search.tasks) for c, entry in enumerate(each.candidates)
    }


def total_worth(search: Search, choice: Choice) -> float:
    """Sum the worths of what is chosen."""
    return sum(search.tasks[t].candidates[c].worth for t, c in choice.items())


def normalised(search: Search, choice: Choice) -> list[float]:
    """List the normalised throughput of every task that can run, lowest first; queued counts as 0."""
    return sorted(
        each.candidates[choice[t]].normalised if t in choice else 0.0
        for t, each in enumerate(search.tasks)
        if each.candidates
    )


def ask(
    search: Search,
    values: Mapping[At, float],
    promises: Sequence[Row],
    hint: Choice | None,
    known_bound: float | None = None,
    reported: bool = False,
    limit_s: float = math.inf,
) -> MasterResult:
    """Ask the master for the choice of the largest value that keeps all rows and promises."""
    return maximise(
        search.tasks,
        [*search.rows, *promises],
        values,
        search.params,
        limit_s=min(limit_s, search.step_s()),
        hint=hint,
        known_bound=known_bound,
        reported=reported,
    )


def report(search: Search, objective: float | None, bound: float | None) -> None:
    """Tell whoever looks on."""
    if search.params.watch is not None:
        search.params.watch.report(objective, bound)


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
    _, placed = search.until_placed(lambda: ask(search, values, (), hint))
    if placed is None:
        return [], None
    return [t for t in good if (t, placed.choice.get(t, -1)) in values], placed
