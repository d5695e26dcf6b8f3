"""Both clocks of the loop."""

from __future__ import annotations

import time
from pathlib import Path

from libra_plan.planner.runtime.supervisor import boot_clock
from libra_plan.planner.telemetry.observations import Moment

__all__ = ["read_clocks"]


def read_clocks() -> Moment:
    """Read both clocks: the wall's, and that of this boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return Moment(time.time(), boot_clock(), boot)  # noqa: TID251 - the one place where the loop meets a clock
