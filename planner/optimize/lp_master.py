"""The master problem as arrays: values, limits and demands, and the bound at dual prices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from libra_plan.planner.optimize.constraints import At, Choice, Constraint
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["SAFETY", "Floats", "Ints", "Master", "duals_of", "largest", "master_of", "units_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SAFETY = 1e-9
"""Relative: the sums of a bound are true to about this, and a bound must not be too low."""
_TRUE_TO = 1e-9  # of a row's largest coefficient


@dataclass(frozen=True)
class Master:
    """At most one configuration for each task, within the constraints that tasks share.

    Configurations are numbered task by task: those of task t are `first[t]` to `first[t + 1]`. Entry e says
    that configuration `column[e]` takes `amount[e]` of constraint `row[e]`; entries are sorted by column.
    """

    names: tuple[str, ...]
    limit: Floats
    value: Floats
    first: Ints
    row: Ints
    column: Ints
    amount: Floats

    @cached_property
    def task(self) -> Ints:
        """Return the task of each configuration."""
        return np.repeat(np.arange(len(self.first) - 1), np.diff(self.first))

    def number(self, choice: Choice) -> Ints:
        """Return the numbers of the chosen configurations."""
        return np.array(sorted(self.first[t] + c for t, c in choice.items()), dtype=np.int64)

    def choice(self, numbers: Ints) -> Choice:
        """Return the choice that some numbers make."""
        tasks = np.searchsorted(self.first, numbers, side="right") - 1
        return {int(t): int(n - self.first[t]) for t, n in zip(tasks, numbers, strict=True)}

    @cached_property
    def _entries(self) -> Ints:
        """Return where the entries of each configuration begin."""
        return np.searchsorted(self.column, np.arange(len(self.value) + 1))

    def demand(self, begin: int, end: int) -> Floats:
        """Return the demands of consecutive configurations, shape (end − begin, constraints)."""
        mine = slice(int(self._entries[begin]), int(self._entries[end]))
        found = np.zeros((end - begin, len(self.limit)))
        found[self.column[mine] - begin, self.row[mine]] = self.amount[mine]
        return found

    def taken(self, numbers: Ints) -> Floats:
        """Return the total demand of some configurations on each constraint."""
        chosen = np.zeros(len(self.value))
        chosen[numbers] = 1.0
        return _sums(self.row, self.amount * chosen[self.column], len(self.limit))

    @cached_property
    def tolerance(self) -> Floats:
        """Return by how much rounding may exceed each constraint."""
        largest = np.ones(len(self.limit))
        np.maximum.at(largest, self.row, np.abs(self.amount))
        return _TRUE_TO * np.maximum(largest, np.abs(self.limit))

    def keeps(self, numbers: Ints) -> bool:
        """Whether a choice keeps every constraint."""
        return bool((self.taken(numbers) <= self.limit + self.tolerance).all())

    def reduced(self, prices: Floats) -> Floats:
        """Return the reduced value of each configuration: its value less its demands at these prices."""
        found: Floats = self.value - _sums(self.column, self.amount * prices[self.row], len(self.value))
        return found

    def loss(self, prices: Floats) -> Floats:
        """Return by how much a choice with each configuration stays below the bound, at least."""
        reduced = self.reduced(prices)
        found: Floats = self.best(reduced)[self.task] - reduced
        return found

    def best(self, reduced: Floats) -> Floats:
        """Return the largest reduced value of each task, 0 where that is negative."""
        most = np.zeros(len(self.first) - 1)
        np.maximum.at(most, self.task, reduced)
        return most

    def bound(self, prices: Floats) -> float:
        """Return the bound on every choice that these prices prove."""
        total = math.fsum(self.limit * prices) + math.fsum(self.best(self.reduced(prices)))
        return total + SAFETY * max(1.0, abs(total))

    def part(self, numbers: Ints) -> Master:
        """Return the same constraints over some of the configurations, numbered anew in their order."""
        at = np.full(len(self.value), -1)
        at[numbers] = np.arange(len(numbers))
        mine = at[self.column] >= 0
        return Master(
            self.names,
            self.limit,
            self.value[numbers],
            np.searchsorted(numbers, self.first),
            self.row[mine],
            at[self.column[mine]],
            self.amount[mine],
        )


def _sums(at: Ints, amounts: Floats, number: int) -> Floats:
    """Add up amounts by place; unlike `bincount`, nothing adds up to floats, too."""
    return np.bincount(at, amounts, minlength=number).astype(np.float64)


def master_of(
    tasks: Sequence[TaskCandidates], constraints: Sequence[Constraint], values: Mapping[At, float]
) -> Master:
    """Write constraints and values as arrays; that a task runs at most once needs no row."""
    first = np.cumsum([0, *(len(each.candidates) for each in tasks)])
    begins = first.tolist()
    value = np.zeros(begins[-1])
    value[[begins[t] + c for t, c in values]] = list(values.values())
    shared = [each for each in constraints if not _is_of_one_task(each)]
    counts = [len(each.coefficients) for each in shared]
    column = np.array([begins[t] + c for each in shared for t, c in each.coefficients], dtype=np.int64)
    amount = np.array([k for each in shared for k in each.coefficients.values()], dtype=np.float64)
    row = np.repeat(np.arange(len(shared)), counts)
    order = np.argsort(column, kind="stable")
    names = tuple(each.name for each in shared)
    limit = np.array([each.limit for each in shared], dtype=np.float64)
    return Master(names, limit, value, first, row[order], column[order], amount[order])


def _is_of_one_task(constraint: Constraint) -> bool:
    return constraint.name.startswith("one:") and len({t for t, _ in constraint.coefficients}) <= 1


def duals_of(master: Master, prices: Floats) -> dict[str, float]:
    """Name the dual prices that are not 0 by their constraints."""
    return {name: float(price) for name, price in zip(master.names, prices, strict=True) if price > 0.0}


def largest(values: Floats) -> float:
    """Return the largest absolute value; 1 where there is none."""
    return float(np.abs(values).max(initial=0.0)) or 1.0


def units_of(master: Master) -> Floats:
    """Return the largest amount of each constraint, by which it is divided so that tolerances hold."""
    units = np.zeros(len(master.limit))
    np.maximum.at(units, master.row, np.abs(master.amount))
    return np.where(units > 0, units, 1.0)
