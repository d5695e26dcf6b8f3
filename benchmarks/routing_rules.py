"""Which replica a trajectory begins on, and which it goes on with after a tool call.

Replicas of one size are a bucket, for lengths (tokens to generate) up to a bound. Four rules behind one
protocol:

- `emptiest`: the replica with the most room; a trajectory stays where it began. Lengths play no part.
- `mlfq`: begin in the smallest bucket; at a tool's return move up when what was generated passes the bound.
- `c-mlfq`: begin in the smallest bucket; at a tool's return move up when the mean and the 90th percentile
  of what is still to come, by the prefix tree of outcomes, fall into one larger bucket (Libra's C-MLFQ).
  `start` changes where it begins, which is ours: where both put a prompt that is known, or on the emptiest.
- `oracle`: the longest first, each in the bucket of its length. No router knows that: a yardstick.

A bucket without room is passed over: at the beginning the next larger takes over, later the trajectory
stays. Nobody moves down: what is still to come only shrinks, and everything would move twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from routing_tree import OutcomeTree, Remaining

from libra_plan.planner.simulate.replica import Dealer, Replica, Trajectory
from libra_plan.planner.simulate.work import DrawnWork
from libra_plan.planner.simulate.world import WorldTask
from libra_plan.profiles.schema_base import Count, File, NonNegative, Positive, Whole

__all__ = ["Bucket", "Routed", "RoutedDealer", "Router", "Routing", "make_router", "routed_by"]

_PAST = 2**32
"""Steps from here on are those of the past: what was done before the first step."""


class Bucket(File, frozen=True, kw_only=True):
    """Replicas of `tp` GPUs are for up to so many tokens; without a bound for all longer ones."""

    tp: Count
    upto_tokens: Positive | None = None


class Routing(File, frozen=True, kw_only=True):
    """How a task's trajectories are routed. `buckets`: smallest tp first.

    `history_epochs`: the tree has learnt from so many passes over the prompts before the first step.
    `any_prompt`, `least_seen`: see `OutcomeTree`. Moves of KV cache take seconds per token: those published
    of Libra, 330 ms within a node and 733 ms between nodes at 40K tokens, unless prefill is quicker.
    """

    router: Literal["emptiest", "mlfq", "c-mlfq", "oracle"]
    buckets: tuple[Bucket, ...]
    history_epochs: Whole = 0
    any_prompt: bool = False
    start: Literal["smallest", "prompt", "emptiest"] = "smallest"
    least_seen: Count = 3
    move_s_per_token: NonNegative = 0.33 / 40_000
    far_move_s_per_token: NonNegative = 0.733 / 40_000

    def tp_for(self, tokens: float) -> int:
        """Return the size of the replicas that are meant for so many tokens."""
        for bucket in self.buckets:
            if bucket.upto_tokens is None or tokens <= bucket.upto_tokens:
                return bucket.tp
        return self.buckets[-1].tp


@dataclass
class Routed:
    """What was routed: trajectories that ended, how many of them in the bucket of their length, and moves.

    Tokens are whole contexts: `tokens` of all that ended, `moved_tokens` once for every move.
    """

    ended: int = 0
    right: int = 0
    tokens: float = 0.0
    moves: int = 0
    moved_tokens: float = 0.0


class Router(Protocol):
    """Choose replicas for trajectories."""

    routing: Routing
    routed: Routed

    def order(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Return the order in which a batch begins."""

    def first(self, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        """Choose where a trajectory begins; None: it waits."""

    def following(self, trajectory: Trajectory, here: Replica, replicas: Sequence[Replica]) -> Replica:
        """Choose where it goes on after a tool call."""

    def ended(self, trajectory: Trajectory, here: Replica) -> None:
        """Learn from one that ended."""


def _emptiest(trajectory: Trajectory, replicas: Iterable[Replica], tp: int | None = None) -> Replica | None:
    """Return the replica with the most room, of one size or of all; None: none has enough."""
    able = [each for each in replicas if (tp is None or each.gpus == tp) and each.fits(trajectory)]
    return min(able, key=lambda each: max(each.held / each.slots, each.reserved / each.room), default=None)


@dataclass
class Emptiest:
    """Look at room only."""

    routing: Routing
    routed: Routed = field(default_factory=Routed)

    def order(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Keep the order."""
        return list(trajectories)

    def first(self, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        """Take the emptiest of all."""
        return _emptiest(trajectory, replicas)

    def following(self, trajectory: Trajectory, here: Replica, replicas: Sequence[Replica]) -> Replica:
        """Stay."""
        return here

    def ended(self, trajectory: Trajectory, here: Replica) -> None:
        """Count it."""
        self.routed.ended += 1
        self.routed.tokens += trajectory.final
        self.routed.right += here.gpus == self.routing.tp_for(trajectory.response)


@dataclass
class Oracle(Emptiest):
    """Know every length."""

    def order(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Begin with the longest, which end last."""
        return sorted(trajectories, key=lambda each: -each.response)

    def first(self, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        """Take the bucket of its length; if that is full the next larger, then the next smaller."""
        tp = self.routing.tp_for(trajectory.response)
        sizes = sorted({each.gpus for each in replicas}, key=lambda size: (size < tp, abs(size - tp)))
        found = (_emptiest(trajectory, replicas, size) for size in sizes)
        return next((each for each in found if each is not None), None)


@dataclass
class Mlfq(Emptiest):
    """Begin small, and move up by what was generated."""

    def first(self, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        """Take the smallest bucket that has room."""
        return self._from(0, trajectory, replicas)

    def _from(self, least: int, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        sizes = sorted({each.gpus for each in replicas}, key=lambda size: (size < least, size))
        found = (_emptiest(trajectory, replicas, size) for size in sizes)
        return next((each for each in found if each is not None), None)

    def following(self, trajectory: Trajectory, here: Replica, replicas: Sequence[Replica]) -> Replica:
        """Move up if another bucket is meant for it, and has room."""
        tp = self.wanted(trajectory)
        if tp is None or tp <= here.gpus:
            return here
        return _emptiest(trajectory, replicas, tp) or here

    def wanted(self, trajectory: Trajectory) -> int | None:
        """Return the size of replica it should be on; None: not known."""
        return self.routing.tp_for(trajectory.generated)


@dataclass
class CausalMlfq(Mlfq):
    """Begin small, and move up by what the outcomes so far tell of what is still to come."""

    tree: OutcomeTree = field(default_factory=OutcomeTree)

    def first(self, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        """Take the smallest bucket that has room, that of a prompt that is known, or the emptiest replica."""
        if self.routing.start == "emptiest":
            return _emptiest(trajectory, replicas)
        least = self.wanted(trajectory) if self.routing.start == "prompt" else None
        return self._from(least or 0, trajectory, replicas)

    def wanted(self, trajectory: Trajectory) -> int | None:
        """Return the bucket into which both the mean and the 90th percentile fall."""
        told = self.tree.look(str(trajectory.prompt_id), trajectory.states[: trajectory.done_turns])
        return None if told is None else self._bucket_of(told)

    def _bucket_of(self, told: Remaining) -> int | None:
        tp = self.routing.tp_for(told.mean_tokens)
        return tp if tp == self.routing.tp_for(told.p90_tokens) else None

    def ended(self, trajectory: Trajectory, here: Replica) -> None:
        """Count it, and learn from it."""
        super().ended(trajectory, here)
        self.learn(trajectory)

    def learn(self, trajectory: Trajectory) -> None:
        """Add it to the tree."""
        turns = trajectory.turns
        remaining = [trajectory.response * (turns - done) / turns for done in range(turns)]
        self.tree.learn(str(trajectory.prompt_id), trajectory.states[: turns - 1], remaining)


def make_router(routing: Routing, history: Iterable[Trajectory]) -> Router:
    """Make the router of a task. `history`: trajectories that ended before, for routers that learn."""
    if routing.router == "emptiest":
        return Emptiest(routing)
    if routing.router == "oracle":
        return Oracle(routing)
    if routing.router == "mlfq":
        return Mlfq(routing)
    tree = OutcomeTree(least_seen=routing.least_seen, any_prompt=routing.any_prompt)
    causal = CausalMlfq(routing, tree=tree)
    for trajectory in history:
        causal.learn(trajectory)
    return causal


class RoutedDealer(Dealer):
    """Assigns the trajectories of one task to replicas by a router."""

    def __init__(self, spec: WorldTask, router: Router) -> None:
        super().__init__(spec)
        self.router = router

    @property
    def calls_outside(self) -> bool:
        """Whether a replica hands a trajectory out while its tool works: always, since it may move then."""
        return True

    def order(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Return the order in which a batch begins."""
        return self.router.order(trajectories)

    def in_order(self, replicas: Sequence[Replica]) -> bool:
        """Whether a batch is dealt to the replicas in order: never, the router chooses."""
        return False

    def first(self, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        """Choose where a trajectory begins; None: it waits."""
        return self.router.first(trajectory, replicas)

    def move(
        self, trajectory: Trajectory, here: Replica, replicas: Sequence[Replica], now: float
    ) -> tuple[Replica, float] | None:
        """Take it to where its router wants it after a tool call: the replica, and the second it arrives.

        None: it stays. What it needs there is kept for it from now on.
        """
        if trajectory.done_turns >= trajectory.turns:
            return None
        there = self.router.following(trajectory, here, replicas)
        if there is here:
            return None
        routing, near = self.router.routing, here.on[0].node == there.on[0].node
        seconds = routing.move_s_per_token if near else routing.far_move_s_per_token
        here.give_up(trajectory, now)
        there.expect(trajectory)
        self.router.routed.moves += 1
        self.router.routed.moved_tokens += trajectory.context
        if seconds <= there.prefill_s_per_token:
            return there, now + seconds * trajectory.context
        there.prefill_again(trajectory, now)
        return there, now

    def ended(self, trajectory: Trajectory, here: Replica) -> None:
        """Tell the router of a trajectory that ended."""
        self.router.ended(trajectory, here)


def routed_by(routing: Routing) -> Callable[[WorldTask, DrawnWork], RoutedDealer]:
    """Return what makes the dealer of a task, for `Engine(dealer_of=…)`."""
    return lambda spec, work: RoutedDealer(spec, make_router(routing, _history(spec, routing, work)))


def _history(spec: WorldTask, routing: Routing, work: DrawnWork) -> Iterator[Trajectory]:
    """Return what a task rolled out in passes over its prompts before the first step."""
    if spec.outcomes is None:
        return
    a_step = -(-spec.samples // spec.outcomes.per_prompt)
    for step in range(routing.history_epochs * -(-spec.outcomes.prompts // a_step)):
        yield from work.step(_PAST + step).trajectories
