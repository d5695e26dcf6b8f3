"""The columns found so far, as arrays that grow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from libra_plan.planner.solvers.colgen.fronts import Floats, Ints
from libra_plan.planner.solvers.colgen.oracle import Found

__all__ = ["Pool"]


class Pool:
    """Columns by number. A column with the demand of another one of its task is kept if better."""

    def __init__(self, rows: int):
        self._value, self._task = np.zeros(64), np.zeros(64, dtype=np.int64)
        self._demand = np.zeros((64, rows))
        self._handle: list[object] = []
        self._seen: dict[tuple[int, bytes], float] = {}

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

    def add(self, task: int, columns: Iterable[Found]) -> int:
        """Take in columns of one task that are worth something new; count them."""
        new = 0
        for column in columns:
            key = (task, np.round(column.demand, 9).tobytes())
            if self._seen.get(key, 0.0) >= column.value - 1e-12:
                continue
            self._seen[key] = column.value
            at = len(self)
            if at == len(self._value):
                self._value = np.resize(self._value, 2 * at)
                self._task = np.resize(self._task, 2 * at)
                self._demand = np.resize(self._demand, (2 * at, self._demand.shape[1]))
            self._value[at], self._task[at], self._demand[at] = column.value, task, column.demand
            self._handle.append(column.handle)
            new += 1
        return new
