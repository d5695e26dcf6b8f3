"""The settings of a hand-over: what may be lost, how long each wait may last, what is read and reported."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from libra_plan.planner.launchers.agents import AgentOptions
from libra_plan.planner.runtime.gpus import GpuCheck, gpus_free
from libra_plan.profiles.switch_costs import STORE

__all__ = ["RUN_FOLDER", "HandOverSettings", "boot_clock"]

RUN_FOLDER = Path("libra-plan-run")


def boot_clock() -> float:
    """Return the seconds since the host was started: no clock step changes them, nor another process."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class HandOverSettings:
    """How a hand-over is done; waits are in seconds.

    Parameters
    ----------
    force
        Stop without a checkpoint, and kill what outlives its grace. This loses work.
    allow_unknown_gpus
        Go on though it is not known whether GPUs are free.
    checkpoint_wait_s
        From the order to a complete checkpoint; None: the task's grace.
    memory_wait_s
        Until the memory of GPUs is free whose processes are gone.
    start_window_s
        A role that reports nothing counts as working when it has lived so long.
    ready_wait_s
        A role that reports must be warm by then.
    profiles
        Profiles folder that the measured costs of moves are added to, beside the folder of the run.
    check_gpus
        Function that reports which GPUs are free.
    options
        How torchrun is started.
    environment
        What roles inherit; that of this process unless given.
    notes
        Function that hears what people should know while it goes on.
    boot_clock, utc_clock
        Seconds since the host was started, and since the epoch.

    Examples
    --------
    >>> import libra_plan as lp
    >>> lp.stop(settings=lp.HandOverSettings(checkpoint_wait_s=60.0)).steps
    ()
    """

    force: bool = False
    allow_unknown_gpus: bool = False
    checkpoint_wait_s: float | None = None
    memory_wait_s: float = 60.0
    start_window_s: float = 30.0
    ready_wait_s: float = 1800.0
    profiles: Path | None = None
    check_gpus: GpuCheck = gpus_free
    options: AgentOptions | None = None
    environment: Mapping[str, str] | None = None
    notes: Callable[[str], None] = lambda _: None
    boot_clock: Callable[[], float] = boot_clock
    utc_clock: Callable[[], float] = time.time

    @property
    def inherited(self) -> dict[str, str]:
        """What roles inherit."""
        return dict(os.environ if self.environment is None else self.environment)

    def stores(self, folder: Path) -> list[Path]:
        """List the files that keep what moves cost, that of the run in `folder` first."""
        return [each / STORE for each in (folder, self.profiles) if each is not None]
