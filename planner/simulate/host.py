"""What a task asks of the engine that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from libra_plan.planner.simulate.record import StepDone
from libra_plan.planner.simulate.replica import Replica

if TYPE_CHECKING:
    from libra_plan.planner.simulate.task_run import TaskRun

__all__ = ["Host"]


class Host(Protocol):
    """What a task asks of the engine that runs it."""

    now: float

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something later."""

    def watch(self, task: TaskRun, replica: Replica) -> None:
        """Follow a replica's events."""

    def call_tool(self, seconds: float, done: Callable[[], None]) -> None:
        """Run a tool call on a CPU worker of the site, when one is free."""

    def stage(self, task: str, role: str, begun: float, seconds: float, gpus: int, busy_gpu_s: float) -> None:
        """Note a stage."""

    def step_done(self, task: TaskRun, done: StepDone) -> None:
        """Note a step; the engine may stop the task here."""
