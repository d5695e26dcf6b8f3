"""Baselines on the same configurations, which a plan must never be worse than: equal, greedy, running."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.topology import Cluster
from libra_plan.planner.optimize.constraints import Choice, Constraint
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["equal_split", "greedy", "keep_running", "keeps_all"]


def keeps_all(rows: Sequence[Constraint], choice: Choice) -> bool:
    """Whether a choice keeps every constraint."""
    return all(
        sum(row.coefficients.get(at, 0.0) for at in choice.items()) <= row.limit + 1e-9 for row in rows
    )


def equal_split(tasks: Sequence[TaskCandidates], rows: Sequence[Constraint], cluster: Cluster) -> Choice:
    """Assign every task the same number of GPUs; each runs its best configuration that fits in them.

    A task that cannot run in its part, or whose configuration no longer packs, is left out.
    """
    part = len(cluster.gpus) // max(1, len(tasks))
    shared = [row for row in rows if not row.name.startswith("one:")]
    left = np.array([row.limit for row in shared]) + 1e-9
    choice: Choice = {}
    for t, each in enumerate(tasks):
        fitting = [
            (-entry.normalised, entry.configuration.gpus, c)
            for c, entry in enumerate(each.candidates)
            if entry.configuration.gpus <= part and entry.held is None
        ]
        for _, _, c in sorted(fitting):
            takes = np.array([row.coefficients.get((t, c), 0.0) for row in shared])
            if (takes <= left).all():
                choice[t] = c
                left -= takes
                break
    return choice


def greedy(
    tasks: Sequence[TaskCandidates], rows: Sequence[Constraint], begin: Choice | None = None
) -> Choice:
    """Upgrade repeatedly the task whose next configuration gains most value per further GPU."""
    split = _Greedy.of(tasks, rows)
    for t, c in (begin or {}).items():
        split.take(t, int(split.first[t]) + c)
    return split.run()


@dataclass
class _Greedy:
    """Candidates as arrays, task by task; `now[t]` is the number of what task t has, -1 for nothing.

    What is left only shrinks, but for a task that changes to other blocks: a task's best step is an upper
    bound until then, so it is looked for anew only when it is its turn and no longer fits.
    """

    first: NDArray[np.int64]
    takes: NDArray[np.float64]
    value: NDArray[np.float64]
    gpus: NDArray[np.float64]
    left: NDArray[np.float64]
    now: NDArray[np.int64]
    steps: list[tuple[float, int, int]] = field(default_factory=list)
    """A heap of (minus gain per GPU, candidate, task): the best step of each task that has one."""

    @classmethod
    def of(cls, tasks: Sequence[TaskCandidates], rows: Sequence[Constraint]) -> _Greedy:
        first = np.cumsum([0, *(len(each.candidates) for each in tasks)])
        begins = first.tolist()
        shared = [row for row in rows if not row.name.startswith("one:")]
        takes = np.zeros((begins[-1], len(shared)))
        for number, row in enumerate(shared):
            for (t, c), coefficient in row.coefficients.items():
                if t < len(tasks):  # the constraints include tasks that run jointly
                    takes[begins[t] + c, number] = coefficient
        entries = [entry for each in tasks for entry in each.candidates]
        return cls(
            first,
            takes,
            np.array([entry.value for entry in entries]),
            np.array([float(entry.configuration.gpus) for entry in entries]),
            np.array([row.limit for row in shared]) + 1e-9,
            np.full(len(tasks), -1),
        )

    def take(self, t: int, number: int) -> bool:
        """Assign a task another candidate; return whether that leaves more of anything."""
        change = self.takes[number] - (self.takes[self.now[t]] if self.now[t] >= 0 else 0.0)
        self.left = self.left - change
        self.now[t] = number
        return bool((change < 0).any())

    def run(self) -> Choice:
        """Take the best step until there is none."""
        self._look_at(range(len(self.now)))
        while self.steps:
            _, number, t = heapq.heappop(self.steps)
            before = self.now[t]
            change = self.takes[number] - (self.takes[before] if before >= 0 else 0.0)
            if not (change <= self.left).all():
                self._look_at([t])
            elif self.take(t, number):
                self.steps.clear()
                self._look_at(range(len(self.now)))
            else:
                self._look_at([t])
        return {t: int(number - self.first[t]) for t, number in enumerate(self.now) if number >= 0}

    def _look_at(self, tasks: Iterable[int]) -> None:
        """Find the best step of some tasks."""
        for t in tasks:
            begin, end = int(self.first[t]), int(self.first[t + 1])
            if begin == end:
                continue
            had = int(self.now[t])
            gain = self.value[begin:end] - (self.value[had] if had >= 0 else 0.0)
            more = self.gpus[begin:end] - (self.gpus[had] if had >= 0 else 0.0)
            room = self.left + (self.takes[had] if had >= 0 else 0.0)
            fits = (self.takes[begin:end] <= room).all(axis=1)
            rate = np.where((gain > 1e-12) & fits, gain / np.maximum(more, 1e-3), -1.0)
            best = int(rate.argmax())
            if rate[best] > 0.0:
                heapq.heappush(self.steps, (-float(rate[best]), begin + best, t))


def keep_running(tasks: Sequence[TaskCandidates]) -> Choice:
    """Keep every running task that can stay as it is, those that run jointly as they do."""
    held = [(t, [c for c, entry in enumerate(each.candidates) if entry.held]) for t, each in enumerate(tasks)]
    kept = {t: candidates[0] for t, candidates in held if candidates}
    jointly = {member for t in kept for member in tasks[t].members}
    return {t: c for t, c in kept.items() if t not in jointly}
