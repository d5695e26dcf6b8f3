"""Moves: tasks end their step, give up GPUs, and take those wanted at a drawn cost.

All tasks of one decision give up GPUs before any of them takes new ones, so that growth waits for the
shrink. A task that does not end its step within `drain_s` is cut off. Where a task is elastic and its change
leaves replicas where they are (`elastic.py`), only those that leave stop, and those that join come one by
one; else the whole task stops and starts anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from libra_plan.models.topology import GpuId
from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.simulate.elastic import ElasticChange, Gpus, elastic_change
from libra_plan.planner.simulate.record import Change

if TYPE_CHECKING:
    from libra_plan.planner.simulate.engine import Engine
    from libra_plan.planner.simulate.task import TaskRun

__all__ = ["Moves"]


@dataclass
class Moves:
    """The moves of one engine. `missed`: something urgent happened while moves were under way."""

    engine: Engine
    rng: np.random.Generator
    missed: bool = False
    _wanted: dict[str, IncumbentTask] = field(default_factory=dict)
    _elastic: dict[str, ElasticChange] = field(default_factory=dict)
    _waits_for: set[str] = field(default_factory=set)
    _stopped_s: dict[str, float] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)
    _starting: set[tuple[str, Gpus]] = field(default_factory=set)
    _round: int = 0

    @property
    def under_way(self) -> bool:
        """Whether tasks wait for others to give up GPUs."""
        return bool(self._waits_for) or bool(self._starting)

    def start(self, wanted: tuple[IncumbentTask, ...]) -> None:
        """Begin the moves from what runs to what is wanted."""
        engine = self.engine
        now = {run.placed.task: run.placed for run in engine.runs.values() if run.placed is not None}
        new = {each.task: each for each in wanted}
        changed = [task for task in {**now, **new} if _places(now.get(task)) != _places(new.get(task))]
        self._elastic = self._which_are_elastic(now, new, changed)
        changed = [task for task in changed if _places(now.get(task)) != _places(self._end_of(task, new))]
        if not changed:
            return
        self._round += 1
        self._wanted = {task: held for task in changed if (held := self._end_of(task, new)) is not None}
        self._waits_for = {task for task in changed if task in now and self._gives(task, now[task])}
        for task in sorted(self._waits_for):
            run = engine.runs[task]
            self._before[task] = run.gpus
            run.draining = True
        if self._waits_for:
            number = self._round
            engine.after(engine.world.switching.drain_s, lambda: self._cut(number))
        else:
            self._place()

    def _which_are_elastic(
        self, now: dict[str, IncumbentTask], new: dict[str, IncumbentTask], changed: list[str]
    ) -> dict[str, ElasticChange]:
        if not self.engine.policy.elastic:
            return {}
        tasks = self.engine.world.task_of
        may = [task for task in changed if task in now and task in new and tasks[task].elastic is not None]
        every = {task: elastic_change(now[task], new[task]) for task in may}
        return {task: change for task, change in every.items() if change is not None}

    def _end_of(self, task: str, new: dict[str, IncumbentTask]) -> IncumbentTask | None:
        return self._elastic[task].wanted if task in self._elastic else new.get(task)

    def _gives(self, task: str, now: IncumbentTask) -> bool:
        """Whether a task must give up GPUs; one that only grows need not end its step."""
        return task not in self._elastic or _places(self._elastic[task].stays) != _places(now)

    def drained(self, task: TaskRun) -> None:
        """Take the GPUs of a task that has ended its step."""
        self._give_up(task)
        if not self._waits_for:
            self._place()

    def _give_up(self, task: TaskRun) -> None:
        name = task.spec.id
        self.engine.settle(task)
        task.draining = False
        self._waits_for.discard(name)
        if name in self._elastic:
            task.leave(self._elastic[name].stays)
            self.engine.hold(task)
        else:
            self._stopped_s[name] = self.engine.now
            task.stop()

    def _cut(self, number: int) -> None:
        if number != self._round or not self._waits_for:
            return
        for task in sorted(self._waits_for):
            self._elastic.pop(task, None)
            self._give_up(self.engine.runs[task])
        self._place()

    def failed(self, task: TaskRun) -> None:
        """Forget the move of a task that lost a GPU, and stopped."""
        name = task.spec.id
        self._elastic.pop(name, None)
        self._before.setdefault(name, 0)
        self._stopped_s[name] = self.engine.now
        task.draining = False
        if name in self._waits_for:
            self._waits_for.discard(name)
            if not self._waits_for:
                self._place()

    def left(self, task: TaskRun) -> None:
        """Forget the move of a task that has done all its steps."""
        self._wanted.pop(task.spec.id, None)
        self._elastic.pop(task.spec.id, None)
        if task.spec.id in self._waits_for:
            self._waits_for.discard(task.spec.id)
            if not self._waits_for:
                self._place()

    def forget(self, gpu: GpuId) -> None:
        """Drop what was wanted on a GPU that failed."""
        self._wanted = {t: held for t, held in self._wanted.items() if not _uses(held, gpu)}

    # ------------------------------------------------------------ taking GPUs

    def _place(self) -> None:
        wanted, self._wanted = self._wanted, {}
        elastic, self._elastic = self._elastic, {}
        for name, held in sorted(wanted.items()):
            if name in elastic:
                self._let_join(name, elastic[name])
            else:
                self._start(name, held)
        self._ended()

    def _start(self, name: str, held: IncumbentTask) -> None:
        engine, seconds = self.engine, self._cost_s(name)
        stopped = self._stopped_s.pop(name, None)
        idle = 0.0 if stopped is None else engine.now - stopped
        before, after = self._before.pop(name, 0), sum(len(r) for role in held.roles for r in role.replicas)
        self._starting.add((name, ()))
        why = "start" if stopped is None else "move"
        engine.record.changes.append(Change(name, engine.now, before, after, seconds, idle, why))
        engine.record.lost_gpu_s[name] += seconds * after + idle * before
        engine.after(seconds, partial(self._begin, name, held, self._round))

    def _begin(self, name: str, held: IncumbentTask, number: int) -> None:
        engine = self.engine
        self._starting.discard((name, ()))
        alive = all(gpu not in engine.lost for role in held.roles for r in role.replicas for gpu in r)
        if alive and number == self._round and name not in engine.record.finished_s:
            engine.begin(engine.runs[name], held)
        else:
            self.missed = True
        self._ended()

    def _let_join(self, name: str, change: ElasticChange) -> None:
        """Start the replicas that join; each joins when it is ready, while the others go on."""
        engine, run = self.engine, self.engine.runs[name]
        before, longest = self._before.pop(name, run.gpus), 0.0
        trains = sum(len(r) for role in change.stays.roles if role.role == "train" for r in role.replicas)
        for role, gpus in change.joins:
            seconds, pause_s = self._joining_s(name, role, own=change.own.issuperset(gpus))
            longest = max(longest, seconds + pause_s)
            engine.record.lost_gpu_s[name] += seconds * len(gpus) + pause_s * trains
            self._starting.add((name, gpus))
            engine.after(seconds, partial(self._join, name, run.life, role, gpus, pause_s))
        after = sum(len(r) for role in change.wanted.roles for r in role.replicas)
        engine.record.changes.append(Change(name, engine.now, before, after, longest, 0.0, "shift"))

    def _join(self, name: str, life: int, role: str, gpus: Gpus, pause_s: float) -> None:
        engine, run = self.engine, self.engine.runs[name]
        self._starting.discard((name, gpus))
        if run.life == life and run.placed is not None and engine.lost.isdisjoint(gpus):
            engine.settle(run)
            run.join(role, gpus, pause_s)
            engine.hold(run)
        else:
            self.missed = True
        self._ended()

    def _ended(self) -> None:
        if not self.under_way and self.missed:
            self.missed = False
            self.engine.decide_again()

    # ------------------------------------------------------------ costs

    def _joining_s(self, task: str, role: str, *, own: bool) -> tuple[float, float]:
        """Return the seconds until a replica joins, and those that training then stands still."""
        engine, spec = self.engine, self.engine.world.task_of[task]
        if engine.policy.moves_free or spec.elastic is None:
            return 0.0, 0.0
        elastic, costs, switching = spec.elastic, spec.costs, engine.world.switching
        trains = role == "train"
        pause_s = elastic.to_training_s if trains else 0.0
        if own:
            return elastic.snapshot_s if trains else elastic.to_rollout_s, pause_s
        start = _drawn(self.rng, switching.start_s)
        load = _drawn(self.rng, switching.load_gib_per_s)
        return start + (costs.weights_gib + (costs.state_gib if trains else 0.0)) / load, pause_s

    def _cost_s(self, task: str) -> float:
        """Draw the cost of a start; a task that has not run yet has nothing to save."""
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


def _places(held: IncumbentTask | None) -> frozenset[object]:
    """Return the placement of every replica, and the tasks that share it."""
    if held is None:
        return frozenset()
    return frozenset((role.role, role.share_group, frozenset(role.placed)) for role in held.roles)


def _uses(held: IncumbentTask, gpu: GpuId) -> bool:
    return any(gpu in replica for role in held.roles for replica in role.replicas)
