"""Price a world's tasks for a planner: by the closed forms, with model errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from libra_plan.models.parallelism import Layout
from libra_plan.models.pricing.layout import replica_counts
from libra_plan.models.quantities import Estimate, Origin, rounded
from libra_plan.models.rollout.streaming import Stream
from libra_plan.models.topology import Cluster
from libra_plan.planner.problem import (
    Arrangement,
    Coupling,
    CouplingKind,
    IncumbentTask,
    Problem,
    Role,
    StageOption,
    Task,
)
from libra_plan.planner.simulate.stage_times import (
    expected_step_lengths,
    rollout_closed_s,
    stream_closed,
    train_closed_s,
)
from libra_plan.planner.simulate.world import DecodeCosts, World, WorldTask
from libra_plan.planner.tables import TABLE_CLASS

__all__ = ["NoisyCosts"]

_BUCKET = 0.02
"""Lengths are rounded to so much of themselves before they are priced, so that prices can be kept."""
_SHARED = 0.9
"""Part of the variance of a model's error that all layouts of one role have in common."""


def _switch_s(world: World, task: WorldTask) -> float:
    """Return about the 90th percentile of a move: slow start, slow save and load of the task's state."""
    costs, switching = task.costs, world.switching
    start, save, load = switching.start_s, switching.save_gib_per_s, switching.load_gib_per_s
    slow_save, slow_load = (save[0] + save[1]) / 2.0, (load[0] + load[1]) / 2.0
    loading = (costs.state_gib + costs.weights_gib) / slow_load
    return (start[1] + start[2]) / 2.0 + costs.state_gib / slow_save + loading


@dataclass
class NoisyCosts:
    """Prices of a world's tasks that a planner works with.

    `rng` draws the error of the models once; None: the costs are true. `moves_free`: a move costs nothing.
    """

    world: World
    rng: np.random.Generator | None = None
    moves_free: bool = False
    _factors: dict[tuple[str, str, int], float] = field(default_factory=dict)
    _kept: dict[tuple[str, int], Task] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sigma = self.world.model_error if self.rng is not None else 0.0
        for task in self.world.tasks:
            for role in task.roles:
                sizes = [each.tp for each in task.costs.decode] if role == "rollout" else [1]
                common = 0.0 if self.rng is None else float(self.rng.standard_normal())
                for size in sizes:
                    own = 0.0 if self.rng is None else float(self.rng.standard_normal())
                    drawn = math.sqrt(_SHARED) * common + math.sqrt(1.0 - _SHARED) * own
                    self._factors[task.id, role, size] = math.exp(sigma * drawn)

    def problem(
        self,
        cluster: Cluster,
        means: Mapping[str, Estimate],
        tasks: Iterable[str],
        running: tuple[IncumbentTask, ...] = (),
        horizon_s: float = 3600.0,
    ) -> Problem:
        """Price tasks at estimated mean lengths of responses, tokens."""
        priced = tuple(self._priced(name, means[name]) for name in tasks)
        return Problem(cluster, priced, running, horizon_s=horizon_s)

    def _priced(self, name: str, mean: Estimate) -> Task:
        bucket = round(math.log(mean.value) / _BUCKET)
        if (name, bucket) not in self._kept:
            self._kept[name, bucket] = self._task(self.world.task_of[name], math.exp(bucket * _BUCKET))
        task = self._kept[name, bucket]
        low, high = mean.low / mean.value, mean.high / mean.value
        if low == high == 1.0:
            return task
        return replace(task, roles=tuple(_widened(role, low, high) for role in task.roles))

    def _task(self, task: WorldTask, mean_tokens: float) -> Task:
        kind = CouplingKind(task.coupling)
        roles = tuple(self._role(task, role, mean_tokens) for role in task.roles)
        lengths = expected_step_lengths(task, mean_tokens)
        return Task(
            task.id,
            task.weight,
            roles,
            Coupling(kind, task.staleness, batches=kind is CouplingKind.ASYNC and task.rollouts == "batches"),
            frozenset(Arrangement(each) for each in task.arrangements),
            float(task.samples),
            float(lengths.sum()),
            task.costs.sync_s if task.costs.decode and task.costs.train else 0.0,
            0.0 if self.moves_free else _switch_s(self.world, task),
            task.min_gpus,
            task.max_gpus,
        )

    def _role(self, task: WorldTask, role: str, mean_tokens: float) -> Role:
        if role == "rollout":
            options = (
                self._rollout(task, costs, count, mean_tokens)
                for costs in task.costs.decode
                for count in self._counts(task, costs.tp)
            )
            return Role(role, "rollout", tuple(options))
        lengths, train = expected_step_lengths(task, mean_tokens), task.costs.train
        if role == "train" and train is not None:
            times = {c: train_closed_s(train, lengths, c) for c in self._counts(task, train.gpus)}
            options = (self._option(task, role, 1, c, train.gpus, s) for c, s in times.items())
            return Role(role, "actor_train", tuple(options))
        scoring = next(each for each in task.costs.scoring if each.id == role)
        work_s = scoring.per_token_s * float(lengths.sum())  # sequences are many: work divides evenly
        counts = self._counts(task, scoring.gpus)
        options = (self._option(task, role, 1, c, scoring.gpus, work_s / c) for c in counts)
        return Role(role, "reference", tuple(options))

    def _rollout(self, task: WorldTask, costs: DecodeCosts, replicas: int, mean_tokens: float) -> StageOption:
        streams = task.coupling == "async" and task.rollouts == "stream"
        seconds = rollout_closed_s(task, costs, mean_tokens, replicas, drains=not streams)
        stream = stream_closed(task, costs, mean_tokens, replicas) if streams else None
        return self._option(task, "rollout", costs.tp, replicas, costs.tp, seconds, stream)

    def _counts(self, task: WorldTask, size: int) -> tuple[int, ...]:
        site = self.world.site
        most = min(site.gpus, task.max_gpus or site.gpus)
        return replica_counts(size, 1, most, task.samples, min(site.gpus_per_node, site.gpus))

    def _option(
        self,
        task: WorldTask,
        role: str,
        size: int,
        replicas: int,
        gpus: int,
        seconds: float,
        stream: Stream | None = None,
    ) -> StageOption:
        factor = self._factors[task.id, role, size]
        value = seconds * factor
        error = 1.64 * self.world.model_error if self.rng is not None else 0.0
        time = Estimate(value, value * math.exp(-error), value * math.exp(error), "s", Origin.INTERPOLATED)
        # memory in shares of a GPU: one role fits beside sleeping ones, two awake do not
        option = StageOption(
            TABLE_CLASS, Layout(tp=gpus), replicas, time, 0.6, 0.5, 0.0, 0.0, 0.0, task.costs.wake_s,
            stream=None if stream is None else stream.scaled(factor),
        )  # fmt: skip
        return rounded(option)  # the same prices, and so the same decisions, on every processor


def _widened(role: Role, low: float, high: float) -> Role:
    """Widen the times of a rollout by how much shorter or longer lengths may be."""
    if role.kind != "rollout":
        return role
    options = tuple(
        replace(o, time_s=replace(o.time_s, low=o.time_s.low * low, high=o.time_s.high * high))
        for o in role.options
    )
    return replace(role, options=options)
