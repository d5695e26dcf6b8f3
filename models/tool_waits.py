"""Event simulation of one rollout replica whose trajectories wait for tools between turns."""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

from libra_plan.models.admission import Admission
from libra_plan.models.fit import DecodeCoefficients
from libra_plan.models.lengths import IntArray

__all__ = ["MOST_TURN_EVENTS", "makespan_with_waits", "simulated_turns"]

# Turns × trajectories that are simulated one by one. Beyond it, neighbouring turns are merged (their
# waits too, so that nothing of the total is lost). The events take some milliseconds.
MOST_TURN_EVENTS = 2048


def simulated_turns(trajectories: int, turns: int) -> int:
    """Count the turns a trajectory is simulated with, after merging."""
    return min(turns, max(1, MOST_TURN_EVENTS // max(trajectories, 1)))


@dataclass
class _Replica:
    """The state between two events. `clock` is in decode steps, `now` in seconds.

    Running trajectories all advance one token per decode step, so they end their turn at a fixed
    `clock`. As all waits are equally long, waiting ones wake in the order they began to wait.
    """

    coefficients: DecodeCoefficients
    admission: Admission
    final: list[int]  # final context of every trajectory, in order
    next_up: int = 0
    held: int = 0  # slots taken, waiting trajectories included
    reserved: int = 0  # Σ final contexts of those
    clock: float = 0.0
    now: float = 0.0
    contexts: float = 0.0  # Σ contexts of the running
    running: list[tuple[float, int]] = field(default_factory=list)
    waiting: deque[tuple[float, int]] = field(default_factory=deque)

    def advance(self) -> bool:
        """Run to the next end of a turn (True) or end of a wait (False)."""
        fit = self.coefficients
        count = len(self.running)
        if not count:
            self.now = self.waiting[0][0]
            return False
        rate = fit.fixed_s + fit.per_sequence_s * count + fit.per_token_s * self.contexts
        growth = fit.per_token_s * count  # a step gets that much slower with every step
        steps = self.running[0][0] - self.clock
        ends_turn = True
        seconds = steps * (rate + growth * steps / 2.0)
        if self.waiting and self.waiting[0][0] < self.now + seconds:
            ends_turn = False
            seconds = max(self.waiting[0][0] - self.now, 0.0)
            steps = 2.0 * seconds / (rate + math.sqrt(rate * rate + 2.0 * growth * seconds))
        self.clock += steps
        self.now += seconds
        self.contexts += count * steps
        return ends_turn

    def admit(self, start: list[int], parts: list[float]) -> None:
        """Start, in order, what fits."""
        limit = self.admission
        while self.next_up < len(self.final) and self.held < limit.sequences:
            index = self.next_up
            if self.reserved + self.final[index] > limit.tokens:
                return
            heapq.heappush(self.running, (self.clock + parts[index], index))
            self.contexts += start[index]
            self.reserved += self.final[index]
            self.held += 1
            self.next_up += 1

    def leave(self, index: int) -> None:
        """Give back the slot and the reserved tokens of a finished trajectory."""
        self.held -= 1
        self.reserved -= self.final[index]


def makespan_with_waits(
    prompts: IntArray,
    responses: IntArray,
    coefficients: DecodeCoefficients,
    admission: Admission,
    turns: int,
    wait_s: float,
) -> float:
    """Give the seconds until the last trajectory has ended its last wait.

    A trajectory is admitted in order when a slot and room for its final context are free, and holds
    both to its end. It generates 1/turns of its response, waits `wait_s`, and so on; a turn may
    begin within a decode step, which moves the result by less than one step per turn. When all are
    admitted at once the result T obeys T₀ ≤ T ≤ T₀ + turns·wait_s, with T₀ the time without waits.
    """
    replica = _Replica(coefficients, admission, (prompts + responses).tolist())
    start, parts = prompts.tolist(), (responses / turns).tolist()
    done = [0] * len(parts)
    replica.admit(start, parts)
    while replica.running or replica.waiting:
        if replica.advance():
            _, index = heapq.heappop(replica.running)
            done[index] += 1
            replica.contexts -= start[index] + done[index] * parts[index]
            replica.waiting.append((replica.now + wait_s, index))
            continue
        _, index = replica.waiting.popleft()
        if done[index] < turns:
            heapq.heappush(replica.running, (replica.clock + parts[index], index))
            replica.contexts += start[index] + done[index] * parts[index]
        else:
            replica.leave(index)
            replica.admit(start, parts)
    return replica.now
