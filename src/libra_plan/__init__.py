"""Plan which GPUs each role of each RL post-training task gets, and prove how good the plan is.

What training loops call is here and loads when it is first used: the handover of a role
(`planner/runtime/worker.py`), `counter` for what a loop gets done (`planner/telemetry/counters.py`),
`recommend_batch` for the batch that memory allows (`models/batch_control.py`), and `fill_bins` to pack
sequences into micro-batches (`models/bins.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libra_plan.models.batch_control import recommend_batch
    from libra_plan.models.bins import fill_bins
    from libra_plan.planner.runtime.worker import (
        await_release,
        checkpoint_requested,
        latest_complete,
        report,
        save_complete,
        step_folder,
    )
    from libra_plan.planner.telemetry.counters import counter

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "await_release",
    "checkpoint_requested",
    "counter",
    "fill_bins",
    "latest_complete",
    "recommend_batch",
    "report",
    "save_complete",
    "step_folder",
]


def __getattr__(name: str) -> object:
    """Load what training loops call when it is first used."""
    if name == "counter":
        from libra_plan.planner.telemetry.counters import counter

        return counter
    if name == "recommend_batch":
        from libra_plan.models.batch_control import recommend_batch

        return recommend_batch
    if name == "fill_bins":
        from libra_plan.models.bins import fill_bins

        return fill_bins
    if name in __all__:
        from libra_plan.planner.runtime import worker

        return getattr(worker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what loads late too, so that shells can complete it."""
    return sorted({*globals(), *__all__})
