"""Say before a hand-over how long each of its steps should take, and on what that rests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from libra_plan.planner.launchers.manifest import Manifest, Transition
from libra_plan.profiles.switch_costs import SwitchPrice

__all__ = ["StepForecast", "forecasts"]


@dataclass(frozen=True)
class StepForecast:
    """One step with the seconds of work it should cost.

    Origin `measured`: the 90th percentile of the task's recorded moves. `assumed`: the start of
    ranks alone, as given for the GPU class, so at least that. None: nothing is known.
    """

    step: str
    task: str
    action: str
    gpus_before: int
    gpus_after: int
    after: tuple[str, ...]
    seconds: float | None
    origin: str | None


def forecasts(
    steps: Iterable[Transition],
    manifest: Manifest | None,
    prices: Mapping[str, SwitchPrice],
    start_s: Mapping[str, float],
) -> tuple[StepForecast, ...]:
    """Forecast steps from recorded moves by task, or from given starts (s) by GPU class."""
    classes = _classes(manifest)
    return tuple(_forecast(step, classes.get(step.task), prices, start_s) for step in steps)


def _classes(manifest: Manifest | None) -> dict[str, str]:
    """Name a GPU class of every task that has GPUs."""
    if manifest is None:
        return {}
    known = {f"{node.id}:{gpu.index}": gpu.gpu_class for node in manifest.spec.nodes for gpu in node.gpus}
    return {
        task.id: known[gpu]
        for task in manifest.spec.tasks
        for role in task.roles
        for replica in role.replicas
        for gpu in replica
    }


def _forecast(
    step: Transition, gpu_class: str | None, prices: Mapping[str, SwitchPrice], start_s: Mapping[str, float]
) -> StepForecast:
    seconds: float | None = None
    origin = None
    if step.action == "keep":
        seconds = 0.0
    elif step.action in ("resize", "move") and step.task in prices:
        seconds, origin = prices[step.task].p90_s, "measured"
    elif step.action != "stop" and gpu_class is not None and gpu_class in start_s:
        seconds, origin = start_s[gpu_class], "assumed"
    return StepForecast(
        step.id, step.task, step.action, step.gpus_before, step.gpus_after, step.after, seconds, origin
    )
