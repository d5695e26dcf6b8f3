"""The work of one step of a task, as the stages see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from libra_plan.models.lengths import IntArray, LengthSample, sample_lengths
from libra_plan.models.rollout import Trajectories, pair_lengths
from libra_plan.profiles.schema import TaskSpec

__all__ = ["TaskWork", "work_of"]

MOST_ORDERS = 16
ORDERED_TRAJECTORIES = 2048
"""Over all orders: with many trajectories luck evens out within one order, and a few orders do."""


@dataclass(frozen=True, eq=False)
class TaskWork:
    """Whole sequences, prompt plus response, and the trajectories in several orders.

    `verdicts`: per judge that writes, the trajectories of its verdicts, whose prompts are the whole
    sequences in the same orders.

    `orders` is empty when nothing is generated. Who meets which prompt and replica is luck: the
    rollout is priced as the mean over the orders, with the best and worst of them in its bounds.
    """

    samples: int
    sequences: LengthSample
    orders: tuple[Trajectories, ...] = ()
    verdicts: Mapping[str, tuple[Trajectories, ...]] = field(default_factory=dict)


def work_of(task: TaskSpec, traces: Mapping[str, Sequence[int]], seed: int) -> TaskWork:
    """Draw the work of a task; prompts and responses are paired in orders set by `seed`.

    Tool waits are those of the task's `env` roles, added up: a turn passes through each.
    """
    work = task.work_per_step
    prompts = sample_lengths(work.prompt_tokens, work.samples, traces)
    rng = np.random.default_rng(seed)
    if work.response_tokens is None:
        return TaskWork(work.samples, prompts, (), _verdicts(task, [prompts.tokens], traces, rng))
    responses = sample_lengths(work.response_tokens, work.samples, traces)
    wait = sum(role.tool_wait_s_per_turn or 0.0 for role in task.roles if role.kind == "env")
    count = min(MOST_ORDERS, max(2, ORDERED_TRAJECTORIES // work.samples))
    orders = tuple(pair_lengths(prompts, responses, rng, work.turns, wait) for _ in range(count))
    sequences = [order.final_context for order in orders]
    verdicts = _verdicts(task, sequences, traces, rng)
    return TaskWork(work.samples, LengthSample(np.sort(sequences[0])), orders, verdicts)


def _verdicts(
    task: TaskSpec,
    sequences: Sequence[IntArray],
    traces: Mapping[str, Sequence[int]],
    rng: np.random.Generator,
) -> dict[str, tuple[Trajectories, ...]]:
    found = {}
    for role in task.roles:
        if role.verdict_tokens is not None:
            lengths = sample_lengths(role.verdict_tokens, task.work_per_step.samples, traces).tokens
            found[role.id] = tuple(Trajectories(each, rng.permutation(lengths)) for each in sequences)
    return found
