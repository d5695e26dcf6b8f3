"""Steps of one task on given GPUs: seconds of roles and of the step, by closed forms and by the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from libra_plan.planner.configurations.phases import coupled_time_s
from libra_plan.planner.problem import Coupling, CouplingKind
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.policy import FixedPlacement, hold
from libra_plan.planner.simulate.record import RunRecord
from libra_plan.planner.simulate.stage_times import (
    expected_step_lengths,
    rollout_closed_s,
    stream_closed,
    train_closed_s,
)
from libra_plan.planner.simulate.world import Drift, Site, World, WorldTask

Sizes = Mapping[str, Sequence[int]]
"""GPUs of every replica, by role."""
_WARM_UP = 8  # steps of an async task before it is timed
_STEPS = 20
_TRAJECTORIES, _MOST_SEEDS = 12_000, 40


@dataclass(frozen=True)
class Case:
    """A task alone at one mean length, on given GPUs. `shared`: its roles take the same GPUs in turn."""

    world: World
    sizes: Sizes
    shared: bool

    @property
    def task(self) -> WorldTask:
        """Return the task."""
        return self.world.tasks[0]

    @property
    def overlaps(self) -> bool:
        """Return whether rollouts go on while it trains."""
        return self.task.coupling == "async" and not self.shared

    @property
    def streams(self) -> bool:
        """Return whether its rollouts never drain."""
        return self.overlaps and self.task.rollouts == "stream"


def case_of(world: World, task: WorldTask, sizes: Sizes, mean_tokens: float, *, shared: bool) -> Case:
    """Put a task into a world of its own: no drift, no failures, no end."""
    law = task.responses
    flat = Drift(first_mean_tokens=mean_tokens, sigma=law.sigma, max_tokens=law.max_tokens)
    alone = msgspec.structs.replace(
        task, responses=flat, arrives_s=0.0, steps=_STEPS if task.coupling == "async" else 1
    )
    gpus = max(sum(each) for each in sizes.values()) if shared else sum(map(sum, sizes.values()))
    site = Site(gpus=gpus, gpus_per_node=min(8, gpus), env_workers=world.site.env_workers)
    room = msgspec.structs.replace(
        world, tasks=(alone,), site=site, failures=None, hours=10_000.0, look_s=3.6e7
    )
    return Case(room, sizes, shared)


def closed_s(case: Case) -> dict[str, float]:
    """Return what the planner is told, with true costs: seconds by role, and of the step."""
    task, costs = case.task, case.task.costs
    mean = task.responses.first_mean_tokens
    lengths = expected_step_lengths(task, mean)
    found: dict[str, float] = {}
    stream = None
    for role, sizes in case.sizes.items():
        if role == "rollout":
            decode = next(each for each in costs.decode if each.tp == sizes[0])
            found[role] = rollout_closed_s(task, decode, mean, len(sizes), drains=not case.streams)
            if case.streams:
                stream = stream_closed(task, decode, mean, len(sizes))
        elif role == "train" and costs.train is not None:
            found[role] = train_closed_s(costs.train, lengths, len(sizes))
        else:
            scoring = next(each for each in costs.scoring if each.id == role)
            found[role] = scoring.per_token_s * float(lengths.sum()) / len(sizes)
    apart = costs.sync_s if "rollout" in found and "train" in found else 0.0
    if case.shared and len(found) > 1:
        step = sum(found.values()) + costs.wake_s * len(found)
    elif case.overlaps:
        coupling = Coupling(CouplingKind.ASYNC, task.staleness, batches=not case.streams)
        pools = [(seconds, stream if role == "rollout" else None) for role, seconds in found.items()]
        step = coupled_time_s(pools, coupling) + apart
    else:
        step = sum(found.values()) + apart
    return {**found, "step": step}


def engine_s(case: Case) -> dict[str, float]:
    """Return the same as simulated, as means over seeds; the rollout of an async task has no stage.

    Three seeds, more where a run has few trajectories: their luck should not be taken for a model's error.
    """
    trajectories = case.task.samples * (case.task.steps or 1)
    seeds = range(min(_MOST_SEEDS, max(3, round(_TRAJECTORIES / trajectories))))
    runs = [_one_run(case, seed) for seed in seeds]
    return {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}


def _one_run(case: Case, seed: int) -> dict[str, float]:
    held = hold(case.world, case.task.id, shared=case.shared, **case.sizes)
    record = run_world(case.world, FixedPlacement(held), seed, keep_stages=True)
    found = {
        role: float(np.mean([row.seconds for row in record.stages if row.role == role][-_STEPS + _WARM_UP :]))
        for role in case.sizes
        if role != "rollout" and not (case.overlaps and role != "train")
    }
    if not case.overlaps:
        if "rollout" in case.sizes:
            found["rollout"] = _rollout_s(case, record)
        return {**found, "step": record.steps[0].at_s}
    ends = [step.at_s for step in record.steps]
    return {**found, "step": (ends[-1] - ends[_WARM_UP - 1]) / (len(ends) - _WARM_UP)}


def _rollout_s(case: Case, record: RunRecord) -> float:
    """Return what was before the first other stage of a step."""
    first = min((row.begun_s for row in record.stages if row.role != "rollout"), default=record.steps[0].at_s)
    wakes = 2 if case.shared and len(case.sizes) > 1 else 0
    return first - wakes * case.task.costs.wake_s
