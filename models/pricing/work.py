"""The work of one step of a task, as input of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from libra_plan.models.length_forecast import forecast_lengths, law_mean_tokens, scaled
from libra_plan.models.lengths import IntArray, LengthSample, sample_lengths
from libra_plan.models.rollout.luck import drawn_steps
from libra_plan.models.rollout.makespan import Trajectories, pair_lengths
from libra_plan.profiles.schema import TaskSpec, WorkSpec
from libra_plan.profiles.tool_wait import tool_wait_of

__all__ = ["TaskWork", "work_of"]

MOST_ORDERS = 16
_FINER, _FINEST = 16, 4096
"""Lengths that steps are drawn from: so many times those of a step, for a tail beyond its longest."""
ORDERED_TRAJECTORIES = 2048
"""Over all orders: with many trajectories luck evens out within one order, and a few orders do."""


@dataclass(frozen=True, eq=False)
class TaskWork:
    """Whole sequences, prompt plus response, and the trajectories in several orders.

    `drawn` holds steps drawn anew from the same laws; `stretch` how much shorter and longer all
    lengths may be than drawn here, as factors, and `notes` what was assumed about them. What is drawn
    later, such as errors of a predictor, is drawn from `seed` too.

    `verdicts`: per judge that writes, the trajectories of its verdicts, whose prompts are the whole
    sequences in the same orders.

    `orders` is empty when nothing is generated. Who meets which prompt and replica is luck: the
    rollout is priced as the mean over the orders, with the best and worst of them in its bounds.
    """

    samples: int
    sequences: LengthSample
    orders: tuple[Trajectories, ...] = ()
    verdicts: Mapping[str, tuple[Trajectories, ...]] = field(default_factory=dict)
    drawn: Trajectories | None = None
    stretch: tuple[float, float] = (1.0, 1.0)
    notes: tuple[str, ...] = ()
    seed: int = 0


def work_of(
    task: TaskSpec, traces: Mapping[str, Sequence[int]], seed: int, at_steps_ahead: int | None = None
) -> TaskWork:
    """Draw the work of a task; prompts and responses are paired in orders set by `seed`.

    Tool waits are those of the task's `env` roles, added up: a turn passes through each. With
    `at_steps_ahead` responses are as long as the task's history foretells for then.
    """
    ahead = _Ahead.of(task.work_per_step, traces, at_steps_ahead)
    work = ahead.work
    prompts = sample_lengths(work.prompt_tokens, work.samples, traces)
    rng = np.random.default_rng(seed)
    if work.response_tokens is None:
        return TaskWork(work.samples, prompts, (), _verdicts(task, [prompts.tokens], traces, rng), seed=seed)
    responses = sample_lengths(work.response_tokens, work.samples, traces)
    wait = tool_wait_of(task.roles)
    count = min(MOST_ORDERS, max(2, ORDERED_TRAJECTORIES // work.samples))
    orders = tuple(pair_lengths(prompts, responses, rng, work.turns, *wait) for _ in range(count))
    sequences = [order.final_context for order in orders]
    verdicts = _verdicts(task, sequences, traces, rng)
    fine = min(_FINER * work.samples, max(_FINEST, work.samples))
    drawn = drawn_steps(
        sample_lengths(work.prompt_tokens, fine, traces),
        sample_lengths(work.response_tokens, fine, traces),
        work.samples,
        rng,
        work.turns,
        wait[0],
    )
    whole = LengthSample(np.sort(sequences[0]))
    return TaskWork(work.samples, whole, orders, verdicts, drawn, ahead.stretch, ahead.notes, seed)


@dataclass(frozen=True)
class _Ahead:
    """The work some steps ahead, how much shorter or longer it may be, and where that is from."""

    work: WorkSpec
    stretch: tuple[float, float] = (1.0, 1.0)
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(work: WorkSpec, traces: Mapping[str, Sequence[int]], steps: int | None) -> _Ahead:
        law = work.response_tokens
        if steps is None or law is None:
            return _Ahead(work)
        if not work.history_tokens:
            return _Ahead(work, notes=(f"lengths {steps} steps ahead as stated: no history_tokens",))
        mean = forecast_lengths(work.history_tokens).at(steps)
        moved = scaled(law, mean.value / law_mean_tokens(law, traces), traces)
        span = f"{mean.low:.0f} to {mean.high:.0f}"
        return _Ahead(
            msgspec.structs.replace(work, response_tokens=moved),
            (mean.low / mean.value, mean.high / mean.value),
            (f"responses {steps} steps ahead: {mean.value:.0f} tokens on average ({span}), a forecast",),
        )


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
