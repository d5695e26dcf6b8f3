"""Tool calls outside a replica, and where trajectories go on after them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libra_plan.planner.simulate.replica import Replica, Trajectory

if TYPE_CHECKING:
    from libra_plan.planner.simulate.task_run import TaskRun

__all__ = ["call_tool"]


def call_tool(run: TaskRun, replica: Replica, trajectory: Trajectory) -> None:
    """Call the tool that a trajectory waits for; nothing comes back to a task that stopped meanwhile."""
    life = run.life

    def back() -> None:
        if run.life == life and replica.holds_call(trajectory):
            _go_on(run, replica, trajectory)

    seconds = trajectory.calls_s[trajectory.done_turns - 1]
    if run.dealer.on_workers:
        run.host.call_tool(seconds, back)
    else:
        run.host.after(seconds, back)


def _go_on(run: TaskRun, replica: Replica, trajectory: Trajectory) -> None:
    """Let it go on here, or where the router wants it."""
    moved = run.dealer.move(trajectory, replica, run.replicas, run.host.now)
    if moved is None:
        _wake(run, replica, trajectory)
        return
    (there, at), life = moved, run.life

    def arrived() -> None:
        if run.life == life and there.holds_call(trajectory):
            _wake(run, there, trajectory)

    run.host.after(at - run.host.now, arrived)
    run.host.watch(run, replica)
    run.refill()


def _wake(run: TaskRun, replica: Replica, trajectory: Trajectory) -> None:
    done = replica.wake(trajectory, run.host.now)
    if done is not None:
        run.ended(replica, done)
    run.host.watch(run, replica)
