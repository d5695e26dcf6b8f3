"""Seconds that replicas need to generate the responses of one step.

A decode step of B running sequences takes a + b·B + k·ΣC seconds (C: their contexts). Every running
sequence advances one token per step, so the seconds of any schedule without idle steps are

    T = a·steps + b·ΣL + k·ΣL·(P + L/2)

with `steps` the number of steps in which anything runs: the longest response when all start at
once (checked exact against step-by-step simulation), and the makespan of list
scheduling when admission is limited: a sequence starts when a slot and room for its final context
are free, in order. Tool waits break that, so they are simulated by event (`tool_waits.py`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.admission import Admission
from libra_plan.models.fit import DecodeCoefficients
from libra_plan.models.lengths import FloatArray, IntArray, LengthSample
from libra_plan.models.tool_waits import drawn_waits_s, makespan_with_waits

__all__ = [
    "Trajectories",
    "continuous_s",
    "decode_steps",
    "makespan_s",
    "pair_lengths",
    "slot_steps",
    "token_work_s",
]

Steps = TypeVar("Steps", int, float)


@dataclass(frozen=True, eq=False)
class Trajectories:
    """The trajectories of one step in the order they are handed out. Arrays of shape (n,), tokens.

    `response_tokens` counts a whole trajectory, over all its turns; each turn generates an equal
    part of it and then waits `tool_wait_s` for its tools, holding its KV cache but not computing: on
    average, log-normally with `tool_wait_sigma`.
    """

    prompt_tokens: IntArray
    response_tokens: IntArray
    turns: int = 1
    tool_wait_s: float = 0.0
    tool_wait_sigma: float = 0.0

    def __len__(self) -> int:
        return len(self.response_tokens)

    @property
    def final_context(self) -> IntArray:
        """Give prompt plus response of each trajectory, tokens."""
        return self.prompt_tokens + self.response_tokens

    @property
    def prefix_tokens(self) -> FloatArray:
        """Give Σ over turns of the tokens before each turn, per trajectory (shape (n,)).

        Turn j of τ starts from prompt + j/τ of the response; their sum is τ·P + L·(τ − 1)/2.
        """
        result: FloatArray = self.turns * self.prompt_tokens + self.response_tokens * (self.turns - 1) / 2.0
        return result

    def share(self, replica: int, replicas: int) -> Trajectories:
        """Give what one replica gets when they are dealt round-robin in their order."""
        return replace(
            self,
            prompt_tokens=self.prompt_tokens[replica::replicas],
            response_tokens=self.response_tokens[replica::replicas],
        )


def pair_lengths(
    prompts: LengthSample,
    responses: LengthSample,
    rng: np.random.Generator,
    turns: int = 1,
    tool_wait_s: float = 0.0,
    tool_wait_sigma: float = 0.0,
) -> Trajectories:
    """Join prompts and responses, independent of each other, in one seeded random order."""
    order = rng.permutation(prompts.tokens), rng.permutation(responses.tokens)
    return Trajectories(*order, turns, tool_wait_s, tool_wait_sigma)


def token_work_s(work: Trajectories, coefficients: DecodeCoefficients) -> FloatArray:
    """Give b·L + k·L·(P + L/2) + p·P per trajectory: its seconds apart from the fixed cost of steps.

    p is the prefill that a serving profile has in its token times (p·P/L in each of L tokens).
    """
    lengths = work.response_tokens.astype(float)
    contexts = work.prompt_tokens + lengths / 2.0
    decode = lengths * (coefficients.per_sequence_s + coefficients.per_token_s * contexts)
    result: FloatArray = decode + coefficients.per_prefill_s * work.prompt_tokens
    return result


def decode_steps(lengths: Sequence[int], contexts: Sequence[int], admission: Admission) -> int:
    """Count the steps in which something runs, under in-order admission.

    `contexts` are final contexts; each must fit `admission.tokens` alone.
    """
    running: list[tuple[int, int]] = []
    now = last = used = 0
    for length, context in zip(lengths, contexts, strict=True):
        while running and (len(running) >= admission.sequences or used + context > admission.tokens):
            now, freed = heapq.heappop(running)
            used -= freed
        heapq.heappush(running, (now + length, context))
        used += context
        last = max(last, now + length)
    return last


def slot_steps(lengths: list[Steps], slots: int) -> Steps:
    """Count steps when only the number of slots limits admission (a faster `decode_steps`)."""
    ends = lengths[:slots]
    heapq.heapify(ends)
    replace_first = heapq.heapreplace
    for length in lengths[slots:]:
        replace_first(ends, ends[0] + length)
    return max(ends)


def _only_slots_bind(contexts: IntArray, admission: Admission) -> bool:
    if admission.sequences * float(contexts.max()) <= admission.tokens:
        return True
    top = np.partition(contexts, len(contexts) - admission.sequences)[-admission.sequences :]
    return float(top.sum()) <= admission.tokens


def _limited_steps(lengths: IntArray, contexts: IntArray, admission: Admission) -> int:
    if len(lengths) > admission.sequences and _only_slots_bind(contexts, admission):
        return int(slot_steps(lengths.tolist(), admission.sequences))
    return decode_steps(lengths.tolist(), contexts.tolist(), admission)


def _check_fits(work: Trajectories, replicas: int, admission: Admission) -> None:
    if not 1 <= replicas <= len(work):
        raise ValueError(f"{replicas} replicas for {len(work)} trajectories")
    if admission.sequences < 1 or float(work.final_context.max()) > admission.tokens:
        raise ValueError(f"the longest trajectory does not fit {admission}")


def _dealt(values: NDArray[Any], replicas: int) -> FloatArray:
    """Lay values out as (rounds, replicas), the last round filled up with zeros."""
    table = np.zeros(-(-len(values) // replicas) * replicas)
    table[: len(values)] = values
    return table.reshape(-1, replicas)


def makespan_s(
    work: Trajectories,
    coefficients: DecodeCoefficients,
    admission: Admission,
    replicas: int = 1,
    prefill_s: FloatArray | None = None,
) -> float:
    """Give the seconds until the slowest of `replicas` has finished its share.

    Shares are dealt round-robin in the given order, since lengths are not known in advance.
    Prefill blocks decoding: `prefill_s`, seconds per trajectory (shape (n,)), adds to its replica.
    """
    _check_fits(work, replicas, admission)
    prefill = np.zeros(len(work)) if prefill_s is None else prefill_s
    steps = _dealt(work.response_tokens, replicas).max(axis=0)
    reserved = _dealt(work.final_context, replicas).sum(axis=0)
    shares = np.bincount(np.arange(len(work)) % replicas, minlength=replicas)
    limited = (shares > admission.sequences) | (reserved > admission.tokens)
    if work.tool_wait_s > 0:
        token_work = _dealt(token_work_s(work, coefficients), replicas).sum(axis=0)
        waits_s = drawn_waits_s(len(work), work.turns, work.tool_wait_s, work.tool_wait_sigma)
        longest = _dealt(waits_s.sum(axis=1), replicas).max(axis=0)
        most = coefficients.fixed_s * steps + token_work + longest
        most[limited] = np.inf
        return _waiting_s(work, coefficients, admission, _dealt(prefill, replicas).sum(axis=0), most, waits_s)
    for replica in np.flatnonzero(limited).tolist():
        part = work.share(replica, replicas)
        steps[replica] = _limited_steps(part.response_tokens, part.final_context, admission)
    token_work = _dealt(token_work_s(work, coefficients) + prefill, replicas).sum(axis=0)
    return float((coefficients.fixed_s * steps + token_work).max())


def _waiting_s(
    work: Trajectories,
    coefficients: DecodeCoefficients,
    admission: Admission,
    prefill_s: FloatArray,
    most_s: FloatArray,
    waits_s: FloatArray,
) -> float:
    """Give the makespan with tool waits (shape (trajectories, turns)); other arrays are per replica.

    `most_s` are upper bounds without prefill (see `makespan_with_waits`): replicas that cannot be
    the slowest are not simulated.
    """
    slowest = 0.0
    for replica in np.argsort(-(most_s + prefill_s), kind="stable").tolist():
        if most_s[replica] + prefill_s[replica] <= slowest:
            break
        part = work.share(replica, len(most_s))
        own = waits_s[replica :: len(most_s)]
        seconds = makespan_with_waits(part.prompt_tokens, part.response_tokens, coefficients, admission, own)
        # what a serving profile counts as prefill does not depend on the order of events
        seconds += coefficients.per_prefill_s * float(part.prompt_tokens.sum())
        slowest = max(slowest, seconds + float(prefill_s[replica]))
    return slowest


def continuous_s(
    work: Trajectories,
    coefficients: DecodeCoefficients,
    admission: Admission,
    replicas: int = 1,
    prefill_s: float = 0.0,
) -> float:
    """Give the seconds per step of replicas that never drain: total work ÷ steady rate.

    With N slots held all the time, B of them computing, a step takes t = a + B·(b + k·c) (c: mean
    context, weighted by length) and a slot is held L̄·t + wait per trajectory, so
    B = N·L̄·t/(L̄·t + wait) and the step's n trajectories take n·(L̄·t + wait)/(N·R). N is the least of
    the slots and the tokens over the mean final context a slot holds; that staleness may allow fewer on
    their way is told in `streaming.py`. Prefill seconds, over all trajectories, are shared evenly.
    """
    _check_fits(work, replicas, admission)
    count, lengths = len(work), work.response_tokens.astype(float)
    mean_length = float(lengths.mean())
    held = float((work.final_context * lengths).sum() / lengths.sum())  # slots see lengths weighted by time
    slots = max(min(float(admission.sequences), admission.tokens / held), 1.0)
    per_sequence = float(token_work_s(work, coefficients).sum() / lengths.sum())  # b + k·c
    wait = work.turns * work.tool_wait_s
    step = _steady_step_s(coefficients.fixed_s, per_sequence, slots, mean_length, wait)
    return count * (mean_length * step + wait) / (slots * replicas) + prefill_s / replicas


def _steady_step_s(fixed: float, per_sequence: float, slots: float, length: float, wait: float) -> float:
    """Solve t = a + β·N·L·t/(L·t + w) for t ≥ 0: L·t² + (w − a·L − β·N·L)·t − a·w = 0."""
    if wait == 0.0:
        return fixed + per_sequence * slots
    linear = wait - fixed * length - per_sequence * slots * length
    root = math.sqrt(linear * linear + 4.0 * length * fixed * wait)
    # of the two equal forms, take the one that does not subtract near-equal numbers
    return (root - linear) / (2.0 * length) if linear < 0 else 2.0 * fixed * wait / (root + linear)
