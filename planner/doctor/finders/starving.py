"""Who waits for whom, of a task's training and rollout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from libra_plan.planner.doctor.evidence import TRAINING, Evidence
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import QueueTrack, RoleTrack, Spell
from libra_plan.planner.doctor.trends import standing_share

__all__ = ["FEEDING", "Pair", "capacity", "is_standing", "mean_rate", "pairs", "queues", "when_waiting"]

FEEDING = ("experience", "rollout")
"""Queues between rollout and training; every other one is of somebody else's work."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A task's training role and its rollout, with the share of time that each waited, if told."""

    training: RoleTrack
    rollout: RoleTrack
    training_waits: float | None
    rollout_waits: float | None


def pairs(evidence: Evidence, limits: Thresholds) -> Iterator[Pair]:
    """Give the pair of every task that has both and was seen for long enough."""
    for task in evidence.tasks:
        training, rollout = evidence.of_kind(task, *TRAINING), evidence.of_kind(task, "rollout")
        if not training or not rollout:
            continue
        # the actor, where a critic trains beside it
        trains = min(training, key=lambda role: TRAINING.index(role.kind))
        rolls = max(rollout, key=lambda role: float(role.covered_s.sum()))
        if min(trains.covered_s.sum(), rolls.covered_s.sum()) >= limits.seen_s:
            yield Pair(trains, rolls, trains.waited_share, rolls.waited_share)


def queues(evidence: Evidence, task: str) -> Iterator[tuple[RoleTrack, QueueTrack]]:
    """Give all queues of a task, with the role that told of each."""
    for role in evidence.roles:
        if role.task == task:
            yield from ((role, queue) for queue in role.queues)


def is_standing(queue: QueueTrack, limits: Thresholds) -> bool:
    """Tell whether a queue was hardly ever empty, over at least ten looks."""
    return len(queue.last) >= 10 and standing_share(queue.last) >= limits.standing_share


def capacity(role: RoleTrack) -> float | None:
    """Give the samples/s that a role gets done in the time in which it does not wait."""
    known = ~np.isnan(role.samples_per_s) & ~np.isnan(role.waiting)
    working_s = float((role.covered_s * (1 - role.waiting))[known].sum())
    done = float((role.samples_per_s * role.covered_s)[known].sum())
    return done / working_s if working_s > 0 and done > 0 else None


def mean_rate(role: RoleTrack) -> float | None:
    """Give the samples/s of a role over all that was recorded of it."""
    known = ~np.isnan(role.samples_per_s)
    seconds = float(role.covered_s[known].sum())
    return float((role.samples_per_s * role.covered_s)[known].sum()) / seconds if seconds > 0 else None


def when_waiting(role: RoleTrack, limits: Thresholds) -> Spell:
    """Give the time from the first to the last stretch in which a role waited for long."""
    chosen = role.start_s[role.waiting >= limits.wait_share]
    place = chosen if len(chosen) else role.start_s
    return Spell(float(place[0]), float(place[-1]) + limits.stretch_s)
