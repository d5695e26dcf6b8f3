"""Plan which GPUs each role of each RL post-training task gets, and prove how good the plan is.

    import libra_plan as lp

    plan = lp.solve("profiles/", gpus=8)
    print(plan.summary())

`docs/api.md` describes every name. Each loads when it is first used, so that importing the package is quick.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libra_plan.errors import (
        ClusterError,
        InputError,
        LaunchError,
        LibraError,
        LockedError,
        ManifestError,
        NoPlanError,
        ProfileError,
        RefusedError,
        StateError,
        TimeLimitError,
        WorkloadError,
    )
    from libra_plan.models.assess import check_profiles, fit_profiles, predict_costs
    from libra_plan.models.batch import recommend_batch
    from libra_plan.models.packing import fill_bins
    from libra_plan.planner.controller.history import explain_look, history, replay
    from libra_plan.planner.controller.job_queue import add_tasks, change_task, list_tasks
    from libra_plan.planner.controller.replan import replan
    from libra_plan.planner.controller.watch import watch
    from libra_plan.planner.doctor.diagnose import diagnose
    from libra_plan.planner.doctor.estimate import estimate_gains
    from libra_plan.planner.explain.drift import drift
    from libra_plan.planner.inputs.price import price
    from libra_plan.planner.inputs.problem import load
    from libra_plan.planner.inputs.validate import validate
    from libra_plan.planner.launchers.base import LauncherRefusal
    from libra_plan.planner.launchers.emit import emit, launchers
    from libra_plan.planner.optimize.interrupter import Interrupter
    from libra_plan.planner.plan import Plan
    from libra_plan.planner.problem import Problem
    from libra_plan.planner.runtime.apply import apply, resume, stop
    from libra_plan.planner.runtime.launch import launch
    from libra_plan.planner.runtime.settings import HandOverSettings
    from libra_plan.planner.runtime.status import status
    from libra_plan.planner.runtime.worker import (
        await_release,
        checkpoint_requested,
        latest_complete,
        report,
        save_complete,
        step_folder,
    )
    from libra_plan.planner.schemas import schema
    from libra_plan.planner.simulate.fit.fit import FittedWorld, fit_world
    from libra_plan.planner.simulate.simulate import Simulation, simulate
    from libra_plan.planner.solving import explain, solve, verify
    from libra_plan.planner.telemetry.batch_sizes import batch_sizes
    from libra_plan.planner.telemetry.counters import counter
    from libra_plan.planner.telemetry.monitor import monitor
    from libra_plan.planner.telemetry.summary import summarise_recording
    from libra_plan.planner.telemetry.throughput import throughput
    from libra_plan.profiles.importers.run import import_profile
    from libra_plan.profiles.measure.measure import measure_profile

__version__ = "0.1.0"

__all__ = [
    "ClusterError",
    "FittedWorld",
    "HandOverSettings",
    "InputError",
    "Interrupter",
    "LaunchError",
    "LauncherRefusal",
    "LibraError",
    "LockedError",
    "ManifestError",
    "NoPlanError",
    "Plan",
    "Problem",
    "ProfileError",
    "RefusedError",
    "Simulation",
    "StateError",
    "TimeLimitError",
    "WorkloadError",
    "__version__",
    "add_tasks",
    "apply",
    "await_release",
    "batch_sizes",
    "change_task",
    "check_profiles",
    "checkpoint_requested",
    "counter",
    "diagnose",
    "drift",
    "emit",
    "estimate_gains",
    "explain",
    "explain_look",
    "fill_bins",
    "fit_profiles",
    "fit_world",
    "history",
    "import_profile",
    "latest_complete",
    "launch",
    "launchers",
    "list_tasks",
    "load",
    "measure_profile",
    "monitor",
    "predict_costs",
    "price",
    "recommend_batch",
    "replan",
    "replay",
    "report",
    "resume",
    "save_complete",
    "schema",
    "simulate",
    "solve",
    "status",
    "step_folder",
    "stop",
    "summarise_recording",
    "throughput",
    "validate",
    "verify",
    "watch",
]

_HOMES = {
    "ClusterError": "errors",
    "FittedWorld": "planner.simulate.fit.fit",
    "HandOverSettings": "planner.runtime.settings",
    "InputError": "errors",
    "Interrupter": "planner.optimize.interrupter",
    "LaunchError": "errors",
    "LauncherRefusal": "planner.launchers.base",
    "LibraError": "errors",
    "LockedError": "errors",
    "ManifestError": "errors",
    "NoPlanError": "errors",
    "Plan": "planner.plan",
    "Problem": "planner.problem",
    "ProfileError": "errors",
    "RefusedError": "errors",
    "Simulation": "planner.simulate.simulate",
    "StateError": "errors",
    "TimeLimitError": "errors",
    "WorkloadError": "errors",
    "add_tasks": "planner.controller.job_queue",
    "apply": "planner.runtime.apply",
    "await_release": "planner.runtime.worker",
    "batch_sizes": "planner.telemetry.batch_sizes",
    "change_task": "planner.controller.job_queue",
    "check_profiles": "models.assess",
    "checkpoint_requested": "planner.runtime.worker",
    "counter": "planner.telemetry.counters",
    "diagnose": "planner.doctor.diagnose",
    "drift": "planner.explain.drift",
    "emit": "planner.launchers.emit",
    "estimate_gains": "planner.doctor.estimate",
    "explain": "planner.solving",
    "explain_look": "planner.controller.history",
    "fill_bins": "models.packing",
    "fit_profiles": "models.assess",
    "fit_world": "planner.simulate.fit.fit",
    "history": "planner.controller.history",
    "import_profile": "profiles.importers.run",
    "latest_complete": "planner.runtime.worker",
    "launch": "planner.runtime.launch",
    "launchers": "planner.launchers.emit",
    "list_tasks": "planner.controller.job_queue",
    "load": "planner.inputs.problem",
    "measure_profile": "profiles.measure.measure",
    "monitor": "planner.telemetry.monitor",
    "predict_costs": "models.assess",
    "price": "planner.inputs.price",
    "recommend_batch": "models.batch",
    "replan": "planner.controller.replan",
    "replay": "planner.controller.history",
    "report": "planner.runtime.worker",
    "resume": "planner.runtime.apply",
    "save_complete": "planner.runtime.worker",
    "schema": "planner.schemas",
    "simulate": "planner.simulate.simulate",
    "solve": "planner.solving",
    "status": "planner.runtime.status",
    "step_folder": "planner.runtime.worker",
    "stop": "planner.runtime.apply",
    "summarise_recording": "planner.telemetry.summary",
    "throughput": "planner.telemetry.throughput",
    "validate": "planner.inputs.validate",
    "verify": "planner.solving",
    "watch": "planner.controller.watch",
}
"""The module of each public name. A new name is added here, to `__all__` and to the imports above."""


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(_import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the names that load late too, so that shells can complete them."""
    return sorted({*globals(), *__all__})
