"""One task of a world as it runs: rollouts, scoring, training and the hand-over of weights between them.

`serial` tasks do one stage after the other (sync, or all roles on the same GPUs). `overlapping` ones
(async, roles on GPUs of their own) roll out while they train: at most (1 + staleness) steps' worth of
trajectories may be begun beyond the version that trains, as a stream, or as batches one after the other.
What ends goes through the scoring queues to the trainer, oldest first.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from libra_plan.models.lengths import IntArray
from libra_plan.models.topology import GpuId
from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.simulate.elastic import with_replica
from libra_plan.planner.simulate.record import StepDone
from libra_plan.planner.simulate.replica import Dealer, Replica, Trajectory
from libra_plan.planner.simulate.stage_times import train_stage
from libra_plan.planner.simulate.work import DrawnWork, random_stream
from libra_plan.planner.simulate.world import WorldTask

if TYPE_CHECKING:
    from libra_plan.planner.simulate.engine import Engine

__all__ = ["TaskRun"]

_age = attrgetter("version", "step", "number")
"""Puts trajectories in the order of the weights they began with, then of the work."""


@dataclass(eq=False)
class TaskRun:
    """The state of a task. `placed` None: it holds no GPUs. `life` tells events of earlier lives apart."""

    spec: WorldTask
    seed: int
    host: Engine
    work: DrawnWork
    dealer: Dealer
    placed: IncumbentTask | None = None
    life: int = 0
    version: int = 0
    draining: bool = False
    replicas: list[Replica] = field(default_factory=list)
    seen_s: dict[str, float] = field(default_factory=dict)
    means: list[float] = field(default_factory=list)
    steps_since_placed: int = 0
    _pending: deque[Trajectory] = field(default_factory=deque)
    _drawn: int = 0
    _flying: int = 0  # begun, and not yet scored
    _generating: int = 0
    _ready: list[Trajectory] = field(default_factory=list)
    _batch: list[Trajectory] = field(default_factory=list)
    _scoring_free: dict[str, float] = field(default_factory=dict)
    _training: bool = False
    _begun: float = 0.0
    _waited: bool = False
    _last_full: float | None = None
    _joining_s: float = 0.0

    # ------------------------------------------------------------ placing

    def begin(self, placed: IncumbentTask) -> None:
        """Start on these GPUs, now."""
        self.placed, self.draining, self.steps_since_placed = placed, False, 0
        self.life += 1
        own = (role for role in placed.roles if role.role == "rollout")
        self.replicas = [self._engine(gpus) for role in own for gpus in role.replicas]
        self._scoring_free = {each.id: self.host.now for each in self.spec.costs.scoring}
        self._last_full = None
        self.seen_s.clear()
        if self.overlapping:
            self._feed()
            self._train_when_full()
        else:
            self._serial_step()

    def stop(self) -> None:
        """Give up the GPUs at once; what is being generated or trained on is lost, the rest is kept."""
        self.life += 1
        self.placed = None
        back = [each for replica in self.replicas for each in replica.abandon()]
        if self.spec.coupling == "async":
            self._put_back(back)
            self._flying -= len(back)
            self._ready = sorted(self._batch + self._ready, key=_age)
        self._batch, self._training, self.replicas, self._generating = [], False, [], 0
        self._joining_s = 0.0

    def leave(self, stays: IncumbentTask) -> None:
        """Release the replicas that do not stay; what they generated is kept and continued elsewhere."""
        kept = {gpus for role in stays.roles if role.role == "rollout" for gpus in role.replicas}
        back = [each for one in self.replicas if one.on not in kept for each in one.leave(self.host.now)]
        self.replicas = [each for each in self.replicas if each.on in kept]
        self._put_back(back)
        self._flying -= len(back)
        self._generating -= len(back)
        self._changed(stays)

    def join(self, role: str, gpus: tuple[GpuId, ...], pause_s: float) -> None:
        """Add a replica that is ready; the next training pauses for some seconds before."""
        assert self.placed is not None
        self._changed(with_replica(self.placed, role, gpus))
        self._joining_s += pause_s
        if role == "rollout":
            self.replicas.append(self._engine(gpus))
            self.refill()

    def _put_back(self, back: list[Trajectory]) -> None:
        self._pending.extendleft(sorted(back, key=attrgetter("step", "number"), reverse=True))

    def _changed(self, placed: IncumbentTask) -> None:
        """Drop the observations of the previous form."""
        self.placed, self._last_full = placed, None
        self.seen_s.clear()

    @property
    def overlapping(self) -> bool:
        """Whether rollouts go on while the task trains."""
        return self.spec.coupling == "async" and not self.colocated

    @property
    def colocated(self) -> bool:
        """Whether all roles take the same GPUs in turn."""
        roles = () if self.placed is None else self.placed.roles
        return len(roles) > 1 and len({role.share_group for role in roles}) == 1

    @property
    def gpus(self) -> int:
        """The number of GPUs it holds."""
        roles = () if self.placed is None else self.placed.roles
        return len({gpu for role in roles for replica in role.replicas for gpu in replica})

    @property
    def finished(self) -> bool:
        """Whether it has done its steps."""
        return self.spec.steps is not None and self.version >= self.spec.steps

    def queue_pressure(self) -> float | None:
        """Return the share of wanted trajectories that wait for a slot; None: it has no rollout."""
        if not self.replicas:
            return None
        waiting = len(self._pending) + sum(len(replica.queue) for replica in self.replicas)
        return min(1.0, waiting / self.spec.samples)

    def _engine(self, gpus: tuple[GpuId, ...]) -> Replica:
        of = next(each for each in self.spec.costs.decode if each.tp == len(gpus))
        return Replica(
            f"{self.spec.id}/{gpus[0]}", len(gpus), of.coefficients(), of.max_sequences, of.kv_tokens,
            of.prefill_s_per_token, self.dealer.calls_outside, now=self.host.now, on=gpus,
        )  # fmt: skip

    def _replicas_of(self, role: str) -> tuple[int, int]:
        """Return the number of a role's replicas, and the GPUs of all."""
        assert self.placed is not None
        held = next(each for each in self.placed.roles if each.role == role)
        return len(held.replicas), sum(map(len, held.replicas))

    def _while_alive(self, act: Callable[[], None]) -> Callable[[], None]:
        """Wrap a function so that it does nothing once the task was stopped."""
        life = self.life

        def act_if_alive() -> None:
            if self.life == life:
                act()

        return act_if_alive

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self.host.after(seconds, self._while_alive(act))

    # ------------------------------------------------------------ rollouts

    def _begin_on(self, replica: Replica, trajectory: Trajectory) -> None:
        if not trajectory.resumes:
            trajectory.version = self.version
        self._flying += 1
        self._generating += 1
        replica.put(trajectory, self.host.now)

    def ended(self, replica: Replica, trajectory: Trajectory) -> None:
        """Process a trajectory of a replica that ended, or that calls a tool outside."""
        if trajectory.calling:
            self._call_tool(replica, trajectory)
            return
        self.dealer.ended(trajectory, replica)
        if self.overlapping:
            self._generating -= 1
            self._score(trajectory)
            self._feed()
        else:
            self._batch.append(trajectory)
            self._deal()
            if len(self._batch) == self.spec.samples:
                self.seen_s["rollout"] = self.host.now - self._begun
                self._score_all()

    def _call_tool(self, replica: Replica, trajectory: Trajectory) -> None:
        """Call the tool that a trajectory waits for; nothing comes back to a task that stopped meanwhile."""
        call = self.host.call_tool if self.dealer.on_workers else self.host.after
        back = partial(self._after_tool, replica, trajectory)
        call(trajectory.calls_s[trajectory.done_turns - 1], self._while_alive(back))

    def _after_tool(self, replica: Replica, trajectory: Trajectory) -> None:
        """Continue the trajectory here, or on the replica to which the dealer moves it."""
        if not replica.holds_call(trajectory):
            return
        moved = self.dealer.move(trajectory, replica, self.replicas, self.host.now)
        if moved is None:
            self._wake(replica, trajectory)
            return
        there, at = moved
        self._later(at - self.host.now, partial(self._wake, there, trajectory))
        self.host.watch(self, replica)
        self.refill()

    def _wake(self, replica: Replica, trajectory: Trajectory) -> None:
        if not replica.holds_call(trajectory):
            return
        done = replica.wake(trajectory, self.host.now)
        if done is not None:
            self.ended(replica, done)
        self.host.watch(self, replica)

    def refill(self) -> None:
        """Start waiting trajectories while there is room."""
        (self._feed if self.overlapping else self._deal)()

    def _feed(self) -> None:
        """Begin trajectories as far as staleness allows; as batches, the next when the last is generated."""
        ahead = len(self._ready) + len(self._batch) + self._flying
        places = (1 + self.spec.staleness) * self.spec.samples - ahead
        if self.spec.rollouts == "stream":
            self._feed_stream(places)
        elif self._pending and self._generating:
            self._deal()
        elif places > 0 and not self._generating and self.replicas:
            self._draw()
            self._hand_out()

    def _draw(self) -> None:
        """Draw the trajectories of the next step where none are left to begin."""
        if not self._pending:
            self._pending.extend(self.dealer.order(self.work.step(self._drawn).trajectories))
            self._drawn += 1

    def _feed_stream(self, places: int) -> None:
        """Start up to this many trajectories, on the emptiest replica first, while there is room."""
        touched: dict[int, Replica] = {}
        while places > 0 and self.replicas:
            self._draw()
            replica = self.dealer.first(self._pending[0], self.replicas)
            if replica is None:
                break
            self._begin_on(replica, self._pending.popleft())
            places -= 1
            touched[id(replica)] = replica
        for replica in touched.values():
            self.host.watch(self, replica)

    def _score(self, trajectory: Trajectory) -> None:
        """Send a trajectory through the scoring queues, each first come, first served."""
        at = self.host.now
        for scoring in self.spec.costs.scoring:
            count, gpus = self._replicas_of(scoring.id)
            begun = max(at, self._scoring_free[scoring.id])
            seconds = scoring.per_token_s * trajectory.final / count
            at = self._scoring_free[scoring.id] = begun + seconds
            self.host.stage(self.spec.id, scoring.id, begun, seconds, gpus, seconds * gpus)
        if at == self.host.now:
            self._arrived(trajectory)
        else:  # it is kept even if the task stops
            self.host.after(at - self.host.now, partial(self._arrived, trajectory))

    def _arrived(self, trajectory: Trajectory) -> None:
        self._flying -= 1
        insort(self._ready, trajectory, key=_age)
        self._train_when_full()

    # ------------------------------------------------------------ training beside rollouts

    def _train_when_full(self) -> None:
        if self._training or self.placed is None or not self.overlapping:
            return
        samples = self.spec.samples
        if len(self._ready) < samples:
            self._waited = True
            return
        now = self.host.now
        if self._waited and self._last_full is not None:  # rollouts were awaited: they set the pace
            self.seen_s["rollout"] = now - self._last_full
        self._waited, self._last_full = False, now
        self._batch, self._ready = self._ready[:samples], self._ready[samples:]
        self._training = True
        self._later(self._train(np.array([each.final for each in self._batch])), self._trained)

    def _train(self, lengths: IntArray) -> float:
        """Note a training stage and return its seconds."""
        costs = self.spec.costs.train
        assert costs is not None
        count, gpus = self._replicas_of("train")
        rng = random_stream(self.seed, "train", self.spec.id, self.version)
        seconds, busy = train_stage(costs, lengths, count, rng)
        self.host.stage(self.spec.id, "train", self.host.now, seconds, gpus, busy)
        self.seen_s["train"] = seconds
        joining_s, self._joining_s = self._joining_s, 0.0
        return joining_s + seconds

    def _trained(self) -> None:
        self._training = False
        batch, self._batch = self._batch, []
        sync_s = self.spec.costs.sync_s
        for replica in self.replicas:
            replica.pause(self.host.now, sync_s)
            self.host.watch(self, replica)
        self._finish_step(batch)
        if self.placed is not None:
            self._later(sync_s, self._synced)

    def _synced(self) -> None:
        self._feed()
        self._train_when_full()

    def _finish_step(self, batch: list[Trajectory]) -> None:
        lengths = [each.final for each in batch] or self.work.step(self.version).lengths.tolist()
        mean = sum(each.final - each.prompt for each in batch) / len(batch) if batch else (
            self.work.step(self.version).mean_response)  # fmt: skip
        stale = max((self.version - each.version for each in batch), default=0)
        done = StepDone(
            self.spec.id, self.version, self.host.now, len(lengths), float(sum(lengths)), mean, stale
        )
        self.version += 1
        self.steps_since_placed += 1
        self.means.append(mean)
        self.host.step_done(self, done)

    # ------------------------------------------------------------ serial steps

    def _serial_step(self) -> None:
        self._batch = []
        if not self.spec.costs.decode:
            self._later(0.0, self._score_all)
            return
        self._pending = deque(self.dealer.order(self.work.step(self.version).trajectories))
        for trajectory in self._pending:
            trajectory.begin_anew()
        self._later(self._wake_s(), self._hand_out)

    def _wake_s(self) -> float:
        return self.spec.costs.wake_s if self.colocated else 0.0

    def _hand_out(self) -> None:
        """Begin a batch: on replicas alike in order, as frameworks do; else where there is room."""
        self._begun = self.host.now
        if self.dealer.in_order(self.replicas):
            for number, trajectory in enumerate(self._pending):
                self._begin_on(self.replicas[number % len(self.replicas)], trajectory)
            self._pending.clear()
        else:
            self._deal()
        for replica in self.replicas:
            self.host.watch(self, replica)

    def _deal(self) -> None:
        """Hand the next trajectories to replicas as they have room."""
        while self._pending:
            replica = self.dealer.first(self._pending[0], self.replicas)
            if replica is None:
                return
            self._begin_on(replica, self._pending.popleft())
            self.host.watch(self, replica)

    def _score_all(self) -> None:
        """Score the whole step, then train."""
        lengths = self.work.step(self.version).lengths
        seconds = 0.0
        for scoring in self.spec.costs.scoring:
            count, gpus = self._replicas_of(scoring.id)
            own = scoring.per_token_s * float(lengths.sum()) / count
            begun = self.host.now + seconds + self._wake_s()
            self.host.stage(self.spec.id, scoring.id, begun, own, gpus, own * gpus)
            self.seen_s[scoring.id] = own
            seconds += own + self._wake_s()
        self._later(seconds, self._train_all)

    def _train_all(self) -> None:
        if self.spec.costs.train is None:
            self._serial_done()
            return
        wake_s = self._wake_s()
        lengths = self.work.step(self.version).lengths
        self._later(wake_s, lambda: self._later(self._train(lengths), self._serial_trained))

    def _serial_trained(self) -> None:
        apart = self.spec.costs.decode and not self.colocated
        self._later(self.spec.costs.sync_s if apart else 0.0, self._serial_done)

    def _serial_done(self) -> None:
        batch, self._batch = self._batch, []
        self._finish_step(batch)
        if self.placed is not None:
            self._serial_step()
