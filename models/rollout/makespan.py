"""Seconds that replicas need to generate the responses of one step.

A decode step of B running sequences takes a + b·B + k·ΣC seconds (C: their contexts). Every running
sequence advances one token per step, so the seconds of any schedule without idle steps are

    T = a·steps + b·ΣL + k·ΣL·(P + L/2)

with `steps` the number of steps in which anything runs (`schedule.py`). With tool waits between turns
a replica is simulated by event: between two events the running trajectories all advance one token per
decode step, so they end their turn at a fixed clock, in decode steps. Waits may be equal or drawn from a
log-normal law: with a heavy tail the longest trajectory of a step waits much longer than the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np

from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.lengths import FloatArray, IntArray, LengthSample
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.schedule import dealt_rows, makespans_s

__all__ = [
    "MOST_TURN_EVENTS",
    "Trajectories",
    "drawn_waits_s",
    "makespan_s",
    "makespan_with_waits",
    "pair_lengths",
    "simulated_turns",
    "token_work_s",
]


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
        """Prompt plus response of each trajectory, tokens."""
        return self.prompt_tokens + self.response_tokens

    @property
    def prefix_tokens(self) -> FloatArray:
        """Σ over turns of the tokens before each turn, per trajectory (shape (n,)).

        Turn j of τ starts from prompt + j/τ of the response; their sum is τ·P + L·(τ − 1)/2.
        """
        result: FloatArray = self.turns * self.prompt_tokens + self.response_tokens * (self.turns - 1) / 2.0
        return result

    def share(self, replica: int, replicas: int) -> Trajectories:
        """Return what one replica gets when they are dealt round-robin in their order."""
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
    """Return b·L + k·L·(P + L/2) + p·P per trajectory: its seconds apart from the fixed cost of steps.

    p is the prefill that a serving profile has in its token times (p·P/L in each of L tokens).
    """
    lengths = work.response_tokens.astype(float)
    contexts = work.prompt_tokens + lengths / 2.0
    decode = lengths * (coefficients.per_sequence_s + coefficients.per_token_s * contexts)
    result: FloatArray = decode + coefficients.per_prefill_s * work.prompt_tokens
    return result


def check_fits(work: Trajectories, replicas: int, admission: Admission) -> None:
    if not 1 <= replicas <= len(work):
        raise ValueError(f"{replicas} replicas for {len(work)} trajectories")
    if admission.sequences < 1 or float(work.final_context.max()) > admission.tokens:
        raise ValueError(f"the longest trajectory does not fit {admission}")


def makespan_s(
    work: Trajectories,
    coefficients: DecodeCoefficients,
    admission: Admission,
    replicas: int = 1,
    prefill_s: FloatArray | None = None,
) -> float:
    """Return the seconds until the slowest of `replicas` has finished its share.

    Shares are dealt round-robin in the given order, since lengths are not known in advance.
    Prefill blocks decoding: `prefill_s`, seconds per trajectory (shape (n,)), adds to its replica.
    """
    check_fits(work, replicas, admission)
    prefill = np.zeros((1, len(work))) if prefill_s is None else prefill_s[None]
    lengths, contexts = work.response_tokens[None].astype(float), work.final_context[None].astype(float)
    token_work = token_work_s(work, coefficients)[None]
    if work.tool_wait_s == 0:
        work_s = token_work + prefill
        return float(makespans_s(lengths, contexts, work_s, coefficients.fixed_s, admission, replicas)[0])
    shares = np.bincount(np.arange(len(work)) % replicas, minlength=replicas)
    reserved = dealt_rows(contexts, replicas).sum(axis=1)[0]
    waits_s = drawn_waits_s(len(work), work.turns, work.tool_wait_s, work.tool_wait_sigma)
    longest = dealt_rows(waits_s.sum(axis=1)[None], replicas).max(axis=1)[0]
    steps, seconds = (
        dealt_rows(lengths, replicas).max(axis=1)[0],
        dealt_rows(token_work, replicas).sum(axis=1)[0],
    )
    most = coefficients.fixed_s * steps + seconds + longest
    most[(shares > admission.sequences) | (reserved > admission.tokens)] = np.inf
    return _waiting_s(
        work, coefficients, admission, dealt_rows(prefill, replicas).sum(axis=1)[0], most, waits_s
    )


def _waiting_s(
    work: Trajectories,
    coefficients: DecodeCoefficients,
    admission: Admission,
    prefill_s: FloatArray,
    most_s: FloatArray,
    waits_s: FloatArray,
) -> float:
    """Return the makespan with tool waits (shape (trajectories, turns)); other arrays are per replica.

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


# Turns × trajectories that are simulated one by one. Beyond it, neighbouring turns are merged (their
# waits too, so that nothing of the total is lost). The events take some milliseconds.
MOST_TURN_EVENTS = 2048


def simulated_turns(trajectories: int, turns: int) -> int:
    """Count the turns a trajectory is simulated with, after merging."""
    return min(turns, max(1, MOST_TURN_EVENTS // max(trajectories, 1)))


def drawn_waits_s(trajectories: int, turns: int, mean_s: float, sigma: float) -> FloatArray:
    """Draw the waits of a step, seconds, shape (trajectories, simulated turns); always the same ones.

    A turn waits log-normally, with this mean and sigma. Where turns are merged, the sum of m waits is
    taken as log-normal again, with its mean and its variance (Fenton and Wilkinson): sigma'² =
    ln(1 + (e^sigma² − 1)/m).
    """
    simulated = simulated_turns(trajectories, turns)
    merged = turns / simulated
    if sigma == 0.0:
        return np.full((trajectories, simulated), mean_s * merged)
    spread = math.sqrt(math.log1p(math.expm1(sigma**2) / merged))
    normal = np.random.default_rng(0).standard_normal((trajectories, simulated))
    waits: FloatArray = mean_s * merged * np.exp(spread * normal - spread**2 / 2.0)
    return waits


def makespan_with_waits(
    prompts: IntArray,
    responses: IntArray,
    coefficients: DecodeCoefficients,
    admission: Admission,
    waits_s: FloatArray,
) -> float:
    """Return the seconds until the last trajectory has ended its last wait.

    A trajectory is admitted in order when a slot and room for its final context are free, and holds
    both to its end. It generates 1/turns of its response, waits its `waits_s` (shape (trajectories,
    turns)), and so on; a turn may begin within a decode step, which moves the result by less than one
    step per turn. When all are admitted at once the result T obeys T₀ ≤ T ≤ T₀ + the longest sum of
    waits, with T₀ the time without waits.
    """
    fit, turns, waits = coefficients, waits_s.shape[1], waits_s.tolist()
    fixed, per_sequence, per_token = fit.fixed_s, fit.per_sequence_s, fit.per_token_s
    final = (prompts + responses).tolist()
    count, slots, room = len(final), admission.sequences, admission.tokens
    next_up = held = reserved = 0  # not yet admitted from here; slots and tokens that are taken
    contexts, parts = prompts.tolist(), (responses / turns).tolist()  # contexts as they grow
    left = [turns] * len(parts)
    running: list[tuple[float, int]] = []
    waiting: list[tuple[float, int]] = []
    clock = now = total = 0.0  # total: Σ contexts of the running
    wakes = math.inf
    while True:
        while next_up < count and held < slots and reserved + final[next_up] <= room:
            reserved += final[next_up]
            held += 1
            heappush(running, (clock + parts[next_up], next_up))
            total += contexts[next_up]
            next_up += 1
        while running:
            batch = len(running)
            rate = fixed + per_sequence * batch + per_token * total
            growth = per_token * batch  # a step gets that much slower with every step
            ends_at, index = running[0]
            steps = ends_at - clock
            ends = now + steps * (rate + growth * steps / 2.0)
            if ends > wakes:
                seconds = wakes - now
                if seconds > 0.0:
                    steps = 2.0 * seconds / (rate + math.sqrt(rate * rate + 2.0 * growth * seconds))
                    clock += steps
                    total += batch * steps
                break
            heappop(running)
            clock, now = ends_at, ends
            grown = contexts[index] = contexts[index] + parts[index]
            total += batch * steps - grown
            left[index] -= 1
            heappush(waiting, (now + waits[index][left[index]], index))
            wakes = waiting[0][0]
        if not waiting:
            return now
        now = max(now, wakes)
        index = heappop(waiting)[1]
        wakes = waiting[0][0] if waiting else math.inf
        if left[index]:
            heappush(running, (clock + parts[index], index))
            total += contexts[index]
        else:  # gives back its slot and the tokens reserved
            held -= 1
            reserved -= final[index]
