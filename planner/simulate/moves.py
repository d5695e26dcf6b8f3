"""Moves: tasks end their step, give up their GPUs, and start where they are wanted at a drawn cost.

All tasks of one decision stop before any of them starts, so that growth waits for the shrink. A task that
does not end its step within `drain_s` is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from libra_plan.models.topology import GpuId
from libra_plan.planner.problem import HeldTask
from libra_plan.planner.simulate.record import Change

if TYPE_CHECKING:
    from libra_plan.planner.simulate.engine import Engine
    from libra_plan.planner.simulate.task_run import TaskRun

__all__ = ["Moves"]


@dataclass
class Moves:
    """The moves of one engine. `missed`: something urgent happened while moves were under way."""

    engine: Engine
    rng: np.random.Generator
    missed: bool = False
    _wanted: dict[str, HeldTask] = field(default_factory=dict)
    _waits_for: set[str] = field(default_factory=set)
    _stopped_s: dict[str, float] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)
    _starting: set[str] = field(default_factory=set)
    _round: int = 0

    @property
    def under_way(self) -> bool:
        """Tell whether tasks wait for others to give up GPUs."""
        return bool(self._waits_for) or bool(self._starting)

    def start(self, wanted: tuple[HeldTask, ...]) -> None:
        """Begin to go from what runs to what is wanted."""
        engine = self.engine
        now = {run.placed.task: run.placed for run in engine.runs.values() if run.placed is not None}
        new = {each.task: each for each in wanted}
        changed = [task for task in {**now, **new} if _places(now.get(task)) != _places(new.get(task))]
        if not changed:
            return
        self._round += 1
        self._wanted = {task: new[task] for task in changed if task in new}
        self._waits_for = {task for task in changed if task in now}
        for task in sorted(self._waits_for):
            run = engine.runs[task]
            self._before[task] = run.gpus
            run.draining = True
        if self._waits_for:
            number = self._round
            engine.after(engine.world.switching.drain_s, lambda: self._cut(number))
        else:
            self._place()

    def drained(self, task: TaskRun) -> None:
        """Hear that a task has ended its step."""
        self._give_up(task)
        if not self._waits_for:
            self._place()

    def _give_up(self, task: TaskRun) -> None:
        self.engine.settle(task)
        self._stopped_s[task.spec.id] = self.engine.now
        task.draining = False
        task.stop()
        self._waits_for.discard(task.spec.id)

    def _cut(self, number: int) -> None:
        if number != self._round or not self._waits_for:
            return
        for task in sorted(self._waits_for):
            self._give_up(self.engine.runs[task])
        self._place()

    def failed(self, task: TaskRun) -> None:
        """Hear that a task has lost a GPU, and stopped."""
        name = task.spec.id
        self._before.setdefault(name, 0)
        self._stopped_s[name] = self.engine.now
        task.draining = False
        if name in self._waits_for:
            self._waits_for.discard(name)
            if not self._waits_for:
                self._place()

    def left(self, task: TaskRun) -> None:
        """Hear that a task has done all its steps."""
        self._wanted.pop(task.spec.id, None)
        if task.spec.id in self._waits_for:
            self._waits_for.discard(task.spec.id)
            if not self._waits_for:
                self._place()

    def forget(self, gpu: GpuId) -> None:
        """Drop what was wanted on a GPU that failed."""
        self._wanted = {t: held for t, held in self._wanted.items() if not _uses(held, gpu)}

    def _place(self) -> None:
        engine, wanted, self._wanted = self.engine, self._wanted, {}
        for name, held in sorted(wanted.items()):
            seconds = self._cost_s(name)
            stopped = self._stopped_s.pop(name, None)
            idle = 0.0 if stopped is None else engine.now - stopped
            before, after = (
                self._before.pop(name, 0),
                sum(len(r) for role in held.roles for r in role.replicas),
            )
            self._starting.add(name)
            why = "start" if stopped is None else "move"
            engine.record.changes.append(Change(name, engine.now, before, after, seconds, idle, why))
            engine.record.lost_gpu_s[name] += seconds * after + idle * before
            engine.after(seconds, partial(self._begin, name, held, self._round))
        self._ended()

    def _begin(self, name: str, held: HeldTask, number: int) -> None:
        engine = self.engine
        self._starting.discard(name)
        alive = all(gpu not in engine.lost for role in held.roles for r in role.replicas for gpu in r)
        if alive and number == self._round and name not in engine.record.finished_s:
            engine.begin(engine.runs[name], held)
        else:
            self.missed = True
        self._ended()

    def _ended(self) -> None:
        if not self.under_way and self.missed:
            self.missed = False
            self.engine.decide_again()

    def _cost_s(self, task: str) -> float:
        """Draw what a start costs; a task that has not run yet has nothing to save."""
        engine = self.engine
        if engine.policy.moves_free:
            return 0.0
        costs, switching = engine.world.task_of[task].costs, engine.world.switching
        start = _drawn(self.rng, switching.start_s)
        save = _drawn(self.rng, switching.save_gib_per_s)
        load = _drawn(self.rng, switching.load_gib_per_s)
        saving = costs.state_gib / save if task in self._stopped_s else 0.0
        return start + saving + (costs.state_gib + costs.weights_gib) / load


def _drawn(rng: np.random.Generator, spread: tuple[float, float, float]) -> float:
    low, mode, high = spread
    return float(rng.triangular(low, mode, high)) if low < high else mode


def _places(held: HeldTask | None) -> frozenset[object]:
    """Give which replicas of which roles are where, and who shares."""
    if held is None:
        return frozenset()
    return frozenset((role.role, role.share_group, frozenset(role.placed)) for role in held.roles)


def _uses(held: HeldTask, gpu: GpuId) -> bool:
    return any(gpu in replica for role in held.roles for replica in role.replicas)
