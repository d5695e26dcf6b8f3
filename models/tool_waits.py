"""Event simulation of one rollout replica whose trajectories wait for tools between turns.

Between two events the running trajectories all advance one token per decode step, so they end their
turn at a fixed clock (in decode steps). The events run in one loop without calls: they are most of a
plan's price. Waits may be equal or drawn from a log-normal law: with a heavy tail the longest trajectory
of a step waits much longer than the mean.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

import numpy as np

from libra_plan.models.admission import Admission
from libra_plan.models.fit import DecodeCoefficients
from libra_plan.models.lengths import FloatArray, IntArray

__all__ = ["MOST_TURN_EVENTS", "drawn_waits_s", "makespan_with_waits", "simulated_turns"]

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
    """Give the seconds until the last trajectory has ended its last wait.

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
