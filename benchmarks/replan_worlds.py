"""Worlds for the re-plan loop: Sia's measured jobs on its 64 GPUs, RL tasks that drift, larger clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from policies_sia import LEFT_OUT, POWER, TYPES, configs, draw_jobs, read_models, read_steps

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Origin, exactly
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize.objective import priced_tasks
from libra_plan.planner.problem import (
    Coupling,
    CouplingKind,
    IncumbentTask,
    Problem,
    Role,
    StageOption,
    Task,
)
from libra_plan.planner.telemetry.observations import (
    CheckpointAge,
    Moment,
    Observations,
    ObservedTime,
    TaskProgress,
)

Floats = NDArray[np.float64]
SECONDS = 1000.0  # of a step at goodput 1


@dataclass(frozen=True)
class SiaWorld:
    """Jobs with their true goodput, shape (jobs, configurations), NaN: not measured."""

    columns: list[tuple[int, int, int]]
    goodput: Floats
    restart_s: Floats
    weights: Floats
    sias_own: bool

    @staticmethod
    def of(stick: Path, jobs: int, seed: int, *, sias_own: bool) -> SiaWorld:
        """Draw jobs; with `sias_own` they are worth what Sia's objective says, else their goodput.

        Sia maximises Σ (1.1 − goodput^−0.5). A job's rate is then that term, and its weight the rate that
        it is held against, so that the sum of weighted fair shares is Sia's sum.
        """
        columns = configs(1)
        drawn = draw_jobs(read_steps(stick), read_models(stick), columns, jobs, seed)
        world = SiaWorld(columns, drawn.goodput, drawn.restart_s, np.ones(jobs), sias_own)
        for _ in range(4 if sias_own else 0):
            problem = world.problem(world.goodput)
            priced = priced_tasks(problem, problem)
            weights = np.array([(each.reference or 0.0) * SECONDS for each in priced])
            world = replace(world, weights=weights)
        return world

    def rate(self, goodput: Floats) -> Floats:
        """Return what a goodput counts."""
        found: Floats = LEFT_OUT - goodput**POWER if self.sias_own else goodput
        return np.maximum(found, 1e-3)

    def problem(self, goodput: Floats, running: tuple[IncumbentTask, ...] = ()) -> Problem:
        """Price the jobs as one sees their goodputs."""
        tasks = []
        for job, row in enumerate(self.rate(goodput)):
            options = tuple(
                StageOption(
                    TYPES[kind][0], Layout(), gpus, exactly(float(SECONDS / row[c]), "s", Origin.MEASURED),
                    0.0, 0.0, 0.0, 0.0, 0.0, 0.0,
                )
                for c, (kind, _, gpus) in enumerate(self.columns)
                if not np.isnan(row[c])
            )  # fmt: skip
            role = Role("train", "actor_train", options)
            sync = Coupling(CouplingKind.SYNC)
            restart_s = float(self.restart_s[job])
            tasks.append(Task(f"job{job:03}", float(self.weights[job]), (role,), sync, restart_s=restart_s))
        return Problem(sia_cluster(), tuple(tasks), running)

    def seen(self, goodput: Floats) -> tuple[ObservedTime, ...]:
        """Say what was seen of every job in every configuration."""
        rate = self.rate(goodput)
        return tuple(
            ObservedTime(
                f"job{job:03}", "train", float(SECONDS / rate[job, c]), f"{gpus} × tp1", TYPES[kind][0]
            )
            for job in range(len(goodput))
            for c, (kind, _, gpus) in enumerate(self.columns)
            if not np.isnan(goodput[job, c])
        )


def sia_cluster() -> Cluster:
    nodes = []
    for name, per_node, count in TYPES:
        for number in range(count):
            node = f"{name}-{number}"
            nodes.append(Node(node, tuple(Gpu(GpuId(node, i), name, 1.0) for i in range(per_node))))
    return Cluster("sia", tuple(nodes))


def window(
    problem: Problem, now: Moment, seen: tuple[ObservedTime, ...] = (), **more: object
) -> Observations:
    """Tell that everybody has a fresh checkpoint and gets on, beside what was seen."""
    runs = [held.task for held in problem.running]
    return Observations(
        now.wall_s,
        seen,
        progress=tuple(TaskProgress(task, 10.0) for task in runs),
        checkpoints=tuple(CheckpointAge(task, 60.0) for task in runs),
        **more,  # type: ignore[arg-type]
    )


def at(look: int, every_s: float = 60.0) -> Moment:
    return Moment(1_800_000_000.0 + look * every_s, 1000.0 + look * every_s, "boot")


def with_running(problem: Problem, held: tuple[IncumbentTask, ...]) -> Problem:
    return replace(problem, running=held)
