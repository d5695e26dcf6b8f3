"""Where the trajectories of one task begin, and where they go on after a tool call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from libra_plan.planner.simulate.replica import Replica, Trajectory
from libra_plan.planner.simulate.routers import Router, make_router
from libra_plan.planner.simulate.work import Work
from libra_plan.planner.simulate.world import WorldTask

__all__ = ["Dealer"]

_PAST = 2**32
"""Steps from here on are those of the past: what was done before the first step."""


class Dealer:
    """Deal trajectories to replicas, by the task's router where it has one."""

    def __init__(self, spec: WorldTask, work: Work) -> None:
        self.spec = spec
        self.router: Router | None = None
        if spec.routing is not None:
            self.router = make_router(spec.routing, _history(spec, work))

    @property
    def calls_outside(self) -> bool:
        """Tell whether replicas hand trajectories out when they call a tool."""
        return self.router is not None or (self.spec.tools is not None and self.spec.tools.on_workers)

    @property
    def on_workers(self) -> bool:
        """Tell whether tool calls take a worker of the site."""
        return self.spec.tools is not None and self.spec.tools.on_workers

    def order(self, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
        """Give the order in which a batch begins."""
        return list(trajectories) if self.router is None else self.router.order(trajectories)

    def in_order(self, replicas: Sequence[Replica]) -> bool:
        """Tell whether a batch is dealt in order, as frameworks do: nobody routes, and replicas are alike."""
        return self.router is None and len({(each.gpus, each.slots) for each in replicas}) == 1

    def first(self, trajectory: Trajectory, replicas: Sequence[Replica]) -> Replica | None:
        """Choose where it begins; None: it waits."""
        if self.router is not None:
            return self.router.first(trajectory, replicas)
        replica = min(replicas, key=lambda each: each.held / each.slots)
        return replica if replica.fits(trajectory) else None

    def move(
        self, trajectory: Trajectory, here: Replica, replicas: Sequence[Replica], now: float
    ) -> tuple[Replica, float] | None:
        """Take it to where its router wants it after a tool call: the replica, and the second it arrives.

        None: it stays. What it needs there is kept for it from now on.
        """
        if self.router is None or trajectory.done_turns >= trajectory.turns:
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
        """Tell the router of one that ended."""
        if self.router is not None:
            self.router.ended(trajectory, here)


def _history(spec: WorldTask, work: Work) -> Iterator[Trajectory]:
    """Give what a task rolled out in passes over its prompts before the first step."""
    if spec.routing is None or spec.outcomes is None:
        return
    a_step = -(-spec.samples // spec.outcomes.per_prompt)
    for step in range(spec.routing.history_epochs * -(-spec.outcomes.prompts // a_step)):
        yield from work.step(_PAST + step).trajectories
