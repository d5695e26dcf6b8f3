"""The work of one step of a task, as the stages see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from libra_plan.models.lengths import LengthSample, sample_lengths
from libra_plan.models.rollout import Trajectories, pair_lengths
from libra_plan.profiles.schema import TaskSpec

__all__ = ["TaskWork", "work_of"]

MOST_ORDERS = 16
ORDERED_TRAJECTORIES = 2048
"""Over all orders: with many trajectories luck evens out within one order, and a few orders do."""


@dataclass(frozen=True, eq=False)
class TaskWork:
    """Whole sequences, prompt plus response, and the trajectories in several orders.

    `orders` is empty when nothing is generated. Who meets which prompt and replica is luck: the
    rollout is priced as the mean over the orders, with the best and worst of them in its bounds.
    """

    samples: int
    sequences: LengthSample
    orders: tuple[Trajectories, ...] = ()


def work_of(task: TaskSpec, traces: Mapping[str, Sequence[int]], seed: int) -> TaskWork:
    """Draw the work of a task; prompts and responses are paired in orders set by `seed`.

    Tool waits are those of the task's `env` roles, added up: a turn passes through each.
    """
    work = task.work_per_step
    prompts = sample_lengths(work.prompt_tokens, work.samples, traces)
    if work.response_tokens is None:
        return TaskWork(work.samples, prompts)
    responses = sample_lengths(work.response_tokens, work.samples, traces)
    wait = sum(role.tool_wait_s_per_turn or 0.0 for role in task.roles if role.kind == "env")
    rng = np.random.default_rng(seed)
    count = min(MOST_ORDERS, max(2, ORDERED_TRAJECTORIES // work.samples))
    orders = tuple(pair_lengths(prompts, responses, rng, work.turns, wait) for _ in range(count))
    return TaskWork(work.samples, LengthSample(np.sort(orders[0].final_context)), orders)
