"""One rollout replica from event to event: continuous batching, tool waits, KV-limited admission.

Between two events every running trajectory advances one token per decode step, so that turns end at a
fixed clock in decode steps (`models/rollout/makespan.py` has the same idea for a closed batch). Trajectories
are admitted in the order of the queue, when a slot and room for the final context are free, and hold both
until they end. Prefill blocks decoding.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.topology import GpuId
from libra_plan.planner.simulate.world import WorldTask

__all__ = ["Dealer", "Replica", "Trajectory"]

_EVER = math.inf


@dataclass(slots=True, eq=False)
class Trajectory:
    """One trajectory: lengths in tokens, seconds of the tool call after each turn (empty: none).

    `version` is that of the weights it began with; `calling`: a tool outside the replica works for it;
    `resumes`: it comes from a replica that left, `ahead` tokens into a turn. Tools return `read` tokens in
    all, in equal parts, which are prefilled; `states` say what each return was like.
    """

    step: int
    number: int
    prompt: int
    response: int
    turns: int
    calls_s: tuple[float, ...] = ()
    read: int = 0
    states: tuple[str, ...] = ()
    prompt_id: int = 0
    done_turns: int = 0
    context: float = 0.0
    version: int = 0
    calling: bool = False
    resumes: bool = False
    ahead: float = 0.0

    @property
    def final(self) -> int:
        """Return prompt, response and tool output, tokens."""
        return self.prompt + self.response + self.read

    @property
    def generated(self) -> float:
        """Return the tokens generated so far, at the end of a turn."""
        return self.response * self.done_turns / self.turns

    def begin_anew(self) -> None:
        """Forget what was generated: its KV cache is lost."""
        self.done_turns, self.context, self.calling = 0, float(self.prompt), False
        self.resumes, self.ahead = False, 0.0

    def keep(self, ahead: float) -> None:
        """Keep what was generated, with so many tokens of this turn: the next replica prefills it."""
        self.resumes, self.ahead, self.calling = True, ahead, False


@dataclass(slots=True, eq=False)
class Replica:
    """An engine on `gpus` GPUs.

    `step` moves it to its next event and gives what that was: a trajectory that ended, or one that calls a
    tool on workers outside (`calls_outside`); it comes back by `wake`.
    """

    name: str
    gpus: int
    coefficients: DecodeCoefficients
    slots: int
    room: float
    prefill_s_per_token: float = 0.0
    calls_outside: bool = False
    now: float = 0.0
    queue: deque[Trajectory] = field(default_factory=deque)
    held: int = 0
    reserved: float = 0.0
    busy_s: float = 0.0
    settled_s: float = 0.0
    on: tuple[GpuId, ...] = ()
    scheduled: float = math.inf
    _clock: float = 0.0
    _total: float = 0.0
    _running: list[tuple[float, int, Trajectory]] = field(default_factory=list)
    _waiting: list[tuple[float, int, Trajectory]] = field(default_factory=list)
    _outside: dict[int, Trajectory] = field(default_factory=dict)
    _order: count[int] = field(default_factory=count)
    _next: float | None = None  # the second of the next event, while nothing has changed since it was asked
    _turn: tuple[float, float] = (_EVER, 0.0)  # with it: the second the next turn ends, decode steps to there

    def fits(self, trajectory: Trajectory) -> bool:
        """Whether it could be admitted now."""
        return self.held < self.slots and self.reserved + trajectory.final <= self.room

    def put(self, trajectory: Trajectory, now: float) -> None:
        """Queue a trajectory here, and admit it if there is room."""
        self.advance(now)
        self.queue.append(trajectory)
        self.admit()

    def admit(self) -> None:
        """Admit from the queue in order while there is room."""
        while self.queue and self.fits(self.queue[0]):
            trajectory = self.queue.popleft()
            self.held += 1
            self.reserved += trajectory.final
            if not trajectory.resumes:
                trajectory.begin_anew()
            seconds = self.prefill_s_per_token * (trajectory.context + trajectory.ahead)
            self.now += seconds
            self.busy_s += seconds
            self._run(trajectory)

    def _run(self, trajectory: Trajectory) -> None:
        ends = self._clock + trajectory.response / trajectory.turns - trajectory.ahead
        heappush(self._running, (ends, next(self._order), trajectory))
        self._total += trajectory.context + trajectory.ahead
        trajectory.resumes, trajectory.ahead = False, 0.0
        self._next = None

    def next_s(self) -> float:
        """Return the second of the next event; inf when nothing will happen by itself."""
        if self._next is None:
            self._next = self._found_next()
        return self._next

    def _found_next(self) -> float:
        # every decode step is slower than the last by what one more token of each context costs
        wakes = self._waiting[0][0] if self._waiting else _EVER
        running, now = self._running, self.now
        if not running:
            self._turn = (_EVER, 0.0)
            return max(wakes, now) if wakes < _EVER else _EVER
        fit, batch = self.coefficients, len(running)
        rate = fit.fixed_s + fit.per_sequence_s * batch + fit.per_token_s * self._total
        steps = running[0][0] - self._clock
        ends = now + steps * (rate + fit.per_token_s * batch * steps / 2.0)
        self._turn = (ends, steps)
        if wakes == _EVER:
            return ends
        return min(ends, max(wakes, now))

    def advance(self, now: float) -> None:
        """Decode up to a moment at which nothing ends yet."""
        seconds = now - self.now
        if seconds <= 0.0:
            return
        if self._running:
            fit, batch = self.coefficients, len(self._running)
            rate = fit.fixed_s + fit.per_sequence_s * batch + fit.per_token_s * self._total
            growth = fit.per_token_s * batch
            steps = 2.0 * seconds / (rate + math.sqrt(rate * rate + 2.0 * growth * seconds))
            steps = min(steps, self._running[0][0] - self._clock)
            self._clock += steps
            self._total += batch * steps
            self.busy_s += seconds
        self.now = now
        self._next = None

    def step(self) -> Trajectory | None:
        """Advance to the next event; return the trajectory that ended, or that calls a tool outside."""
        self.next_s()
        wakes = self._waiting[0][0] if self._waiting else _EVER
        ends, steps = self._turn
        if self._running and ends <= wakes:
            return self._end_turn(ends, steps)
        self.advance(wakes)
        self._next = None
        _, _, trajectory = heappop(self._waiting)
        return self._back(trajectory)

    def _end_turn(self, ends: float, steps: float) -> Trajectory | None:
        clock, _, trajectory = heappop(self._running)
        self._total += (len(self._running) + 1) * steps
        self.busy_s += ends - self.now
        self._clock, self.now, self._next = clock, ends, None
        trajectory.context += trajectory.response / trajectory.turns
        self._total -= trajectory.context
        trajectory.done_turns += 1
        if not self._running:
            self._total = 0.0  # nothing runs: forget the rounding
        if not trajectory.calls_s:
            return self._back(trajectory)
        if self.calls_outside:
            trajectory.calling = True
            self._outside[id(trajectory)] = trajectory
            return trajectory
        wakes = ends + trajectory.calls_s[trajectory.done_turns - 1]
        heappush(self._waiting, (wakes, next(self._order), trajectory))
        return None

    def wake(self, trajectory: Trajectory, now: float) -> Trajectory | None:
        """Continue a trajectory after a call outside; return it if it ended with the call."""
        self.advance(now)
        del self._outside[id(trajectory)]
        trajectory.calling = False
        return self._back(trajectory)

    def _back(self, trajectory: Trajectory) -> Trajectory | None:
        if trajectory.done_turns < trajectory.turns:
            if trajectory.read:
                self._prefill(trajectory, trajectory.read / trajectory.turns)
            self._run(trajectory)
            return None
        self._free(trajectory)
        return trajectory

    def _prefill(self, trajectory: Trajectory, tokens: float) -> None:
        seconds = self.prefill_s_per_token * tokens
        self.now += seconds
        self.busy_s += seconds
        self._next = None
        trajectory.context += tokens

    def _free(self, trajectory: Trajectory) -> None:
        self.held -= 1
        self.reserved -= trajectory.final
        self.admit()

    def give_up(self, trajectory: Trajectory, now: float) -> None:
        """Release a trajectory whose tool has just returned, so that it can continue elsewhere."""
        self.advance(now)
        del self._outside[id(trajectory)]
        self._free(trajectory)

    def expect(self, trajectory: Trajectory) -> None:
        """Reserve a slot and memory for a trajectory that is on its way here; `wake` continues it."""
        self.held += 1
        self.reserved += trajectory.final
        self._outside[id(trajectory)] = trajectory

    def prefill_again(self, trajectory: Trajectory, now: float) -> None:
        """Compute the KV cache of one that came without it."""
        self.advance(now)
        context, trajectory.context = trajectory.context, 0.0
        self._prefill(trajectory, context)

    def pause(self, now: float, seconds: float) -> None:
        """Pause for some seconds, as for new weights."""
        self.advance(now)
        self.now += seconds
        self._next = None

    def busy_until(self, now: float) -> float:
        """Return the seconds it has worked up to a moment at which nothing ends yet."""
        return self.busy_s + max(0.0, now - self.now) if self._running else self.busy_s

    def holds_call(self, trajectory: Trajectory) -> bool:
        """Whether a tool outside works for a trajectory that is still here."""
        return id(trajectory) in self._outside

    def leave(self, now: float) -> list[Trajectory]:
        """Return everything that is here with what was generated; tools that work are called again."""
        self.advance(now)
        for ends, _, trajectory in self._running:
            trajectory.keep(max(0.0, trajectory.response / trajectory.turns - (ends - self._clock)))
        for trajectory in (*(each[2] for each in self._waiting), *self._outside.values()):
            turn = trajectory.response / trajectory.turns
            trajectory.done_turns -= 1
            trajectory.context -= turn
            trajectory.keep(turn)
        self.scheduled = math.inf
        return self._emptied()

    def abandon(self) -> list[Trajectory]:
        """Return everything that is here, in the order of steps; what was generated is lost."""
        found = self._emptied()
        for trajectory in found:
            trajectory.begin_anew()
        return found

    def _emptied(self) -> list[Trajectory]:
        found = [each[2] for each in (*self._running, *self._waiting)]
        found += [*self._outside.values(), *self.queue]
        self._running, self._waiting, self._outside = [], [], {}
        self.queue.clear()
        self.held, self.reserved, self._total, self._next = 0, 0.0, 0.0, None
        return sorted(found, key=lambda each: (each.step, each.number))


class Dealer:
    """Decide which replica each trajectory of a task begins on, and where it goes on after a tool call.

    Replicas of one kind get a batch in order, as frameworks do; otherwise the emptiest replica is next, and
    a trajectory stays where it began. A subclass may route otherwise (`benchmarks/routing_rules.py`).
    """

    def __init__(self, spec: WorldTask) -> None:
        self.spec = spec

    @property
    def on_workers(self) -> bool:
        """Whether tool calls take a CPU worker of the site."""
        return self.spec.tools is not None and self.spec.tools.on_workers

    @property
    def calls_outside(self) -> bool:
        """Whether a replica hands a trajectory out while its tool works."""
        return self.on_workers

    def order(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Return the order in which a batch begins."""
        return list(trajectories)

    def in_order(self, replicas: Sequence[Replica]) -> bool:
        """Whether a batch is dealt to the replicas in order."""
        return len({(each.gpus, each.slots) for each in replicas}) == 1

    def first(self, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        """Choose where a trajectory begins; None: it waits."""
        replica = min(replicas, key=lambda each: each.held / each.slots)
        return replica if replica.fits(trajectory) else None

    def move(
        self, trajectory: Trajectory, here: Replica, replicas: Sequence[Replica], now: float
    ) -> tuple[Replica, float] | None:
        """Move a trajectory after a tool call; return its new replica and when it arrives. None: it stays."""
        return None

    def ended(self, trajectory: Trajectory, here: Replica) -> None:
        """Learn from a trajectory that ended."""
