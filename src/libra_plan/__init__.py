"""Plan which GPUs each role of each RL post-training task gets, and prove how good the plan is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libra_plan.planner.handover.worker import (
        await_release,
        checkpoint_requested,
        latest_complete,
        report,
        save_complete,
        step_folder,
    )

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "await_release",
    "checkpoint_requested",
    "latest_complete",
    "report",
    "save_complete",
    "step_folder",
]


def __getattr__(name: str) -> object:
    """Load what training loops call (`planner/handover/worker.py`) when it is first used."""
    if name in __all__:
        from libra_plan.planner.handover import worker

        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
