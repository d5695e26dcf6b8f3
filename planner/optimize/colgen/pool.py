"""The configurations found so far, as arrays that grow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats, Ints
from libra_plan.planner.optimize.colgen.oracle import Found

__all__ = ["Pool"]


class Pool:
    """Configurations by number. A configuration with the demand of another one of its task is kept if better."""

    def __init__(self, rows: int):
        self._value, self._task = np.zeros(64), np.zeros(64, dtype=np.int64)
        self._demand = np.zeros((64, rows))
        self._handle: list[object] = []
        self._number: dict[tuple[int, bytes], int] = {}

    def __len__(self) -> int:
        return len(self._handle)

    @property
    def value(self) -> Floats:
        """Give the value of every configuration."""
        return self._value[: len(self)]

    @property
    def task(self) -> Ints:
        """Give the task of every configuration."""
        return self._task[: len(self)]

    @property
    def demand(self) -> Floats:
        """Give the demand of every configuration, one row each."""
        return self._demand[: len(self)]

    def handle(self, number: int) -> object:
        """Give what the oracle needs to describe a configuration."""
        return self._handle[number]

    def best_reduced(self, prices: Floats, tasks: int) -> Floats:
        """Give each task's highest reduced value among its configurations, 0 when none is above."""
        best = np.zeros(tasks)
        np.maximum.at(best, self.task, self.value - self.demand @ prices)
        return best

    def number_of(self, task: int, configuration: Found) -> int:
        """Take in a configuration and give its number, or that of a better one with the same demand."""
        self.add(task, [configuration])
        return self._number[_key(task, configuration.demand)]

    def add(self, task: int, configurations: Iterable[Found]) -> int:
        """Take in configurations of one task that are worth something new; count them."""
        new = 0
        for configuration in configurations:
            key = _key(task, configuration.demand)
            if key in self._number and self._value[self._number[key]] >= configuration.value - 1e-12:
                continue
            at = len(self)
            self._number[key] = at
            if at == len(self._value):
                self._value = np.resize(self._value, 2 * at)
                self._task = np.resize(self._task, 2 * at)
                self._demand = np.resize(self._demand, (2 * at, self._demand.shape[1]))
            self._value[at], self._task[at], self._demand[at] = (
                configuration.value,
                task,
                configuration.demand,
            )
            self._handle.append(configuration.handle)
            new += 1
        return new


def _key(task: int, demand: Floats) -> tuple[int, bytes]:
    return task, (np.round(demand, 9) + 0.0).tobytes()
