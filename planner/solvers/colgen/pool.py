"""The columns found so far, as arrays that grow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from libra_plan.planner.solvers.colgen.arrays import Floats, Ints
from libra_plan.planner.solvers.colgen.oracle import Found

__all__ = ["Pool"]


class Pool:
    """Columns by number. A column with the demand of another one of its task is kept if better."""

    def __init__(self, rows: int):
        self._value, self._task = np.zeros(64), np.zeros(64, dtype=np.int64)
        self._demand = np.zeros((64, rows))
        self._handle: list[object] = []
        self._number: dict[tuple[int, bytes], int] = {}

    def __len__(self) -> int:
        return len(self._handle)

    @property
    def value(self) -> Floats:
        """Give the value of every column."""
        return self._value[: len(self)]

    @property
    def task(self) -> Ints:
        """Give the task of every column."""
        return self._task[: len(self)]

    @property
    def demand(self) -> Floats:
        """Give the demand of every column, one row each."""
        return self._demand[: len(self)]

    def handle(self, number: int) -> object:
        """Give what the oracle needs to describe a column."""
        return self._handle[number]

    def best_reduced(self, prices: Floats, tasks: int) -> Floats:
        """Give each task's highest reduced value among its columns, 0 when none is above."""
        best = np.zeros(tasks)
        np.maximum.at(best, self.task, self.value - self.demand @ prices)
        return best

    def number_of(self, task: int, column: Found) -> int:
        """Take in a column and give its number, or that of a better one with the same demand."""
        self.add(task, [column])
        return self._number[_key(task, column.demand)]

    def add(self, task: int, columns: Iterable[Found]) -> int:
        """Take in columns of one task that are worth something new; count them."""
        new = 0
        for column in columns:
            key = _key(task, column.demand)
            if key in self._number and self._value[self._number[key]] >= column.value - 1e-12:
                continue
            at = len(self)
            self._number[key] = at
            if at == len(self._value):
                self._value = np.resize(self._value, 2 * at)
                self._task = np.resize(self._task, 2 * at)
                self._demand = np.resize(self._demand, (2 * at, self._demand.shape[1]))
            self._value[at], self._task[at], self._demand[at] = column.value, task, column.demand
            self._handle.append(column.handle)
            new += 1
        return new


def _key(task: int, demand: Floats) -> tuple[int, bytes]:
    return task, (np.round(demand, 9) + 0.0).tobytes()
