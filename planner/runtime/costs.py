"""What moves cost: measured from a journal and the roles' reports, and forecast before a hand-over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libra_plan.errors import ProfileError
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, Transition
from libra_plan.planner.runtime.checkpoints import marks_of
from libra_plan.planner.runtime.state import Process, RunState
from libra_plan.profiles.catalog import load_switching, shipped_folder
from libra_plan.profiles.switch_costs import (
    RoleSwitch,
    SwitchPrice,
    SwitchRecord,
    read_switch_costs,
    switch_prices,
)

__all__ = ["StepForecast", "append_costs", "costs_of", "forecasts", "known_prices"]


def costs_of(
    state: RunState, steps: Iterable[Transition], node: NodeEntry, at: str
) -> tuple[SwitchRecord, ...]:
    """List the costs of the moves of each task.

    Times come from the journal, which counts them across supervisors, and are None where the host
    was started again in between.
    """
    by_task: dict[str, list[Transition]] = {}
    for step in steps:
        if step.action != "keep":
            by_task.setdefault(step.task, []).append(step)
    return tuple(_record(state, task, moved, node, at) for task, moved in by_task.items())


def _record(state: RunState, task: str, steps: list[Transition], node: NodeEntry, at: str) -> SwitchRecord:
    times = state.timeline.get(task, {})
    saved = state.saves.get(task)
    checkpoint_s = _between(times.get("ordered"), times.get("saved"))
    save_s = None if saved is None else saved.save_s
    stop_s = _between(times.get("stopping"), times.get("gone"))
    arrived = [one for one in state.of(task) if one.turn >= state.first_turn]
    roles = tuple(_role(one) for one in arrived)
    action = steps[0].action if len(steps) == 1 else "move"  # an early stop and a late start are one move
    assert action != "keep"
    classes = {f"{node.id}:{gpu.index}": gpu.gpu_class for gpu in node.gpus}
    used = {classes[gpu] for one in arrived for gpu in one.gpus if gpu in classes}
    return SwitchRecord(
        schema_version=1,
        task=task,
        action=action,
        gpu_class=used.pop() if len(used) == 1 else None,
        gpus_before=max(step.gpus_before for step in steps),
        gpus_after=max(step.gpus_after for step in steps),
        checkpoint_s=checkpoint_s,
        drain_s=None if checkpoint_s is None or save_s is None else max(checkpoint_s - save_s, 0.0),
        save_s=save_s,
        stop_s=stop_s,
        roles=roles,
        lost_s=_lost_s(save_s if save_s is not None else checkpoint_s, "ordered" in times, stop_s, roles),
        at=at,
    )


def _lost_s(
    saving_s: float | None, ordered: bool, stop_s: float | None, roles: tuple[RoleSwitch, ...]
) -> float | None:
    arriving = [_sum(role.start_s, role.load_s or 0.0, role.warm_up_s) for role in roles]
    known = [seconds for seconds in arriving if seconds is not None]
    slowest = max(known) if known else None  # a role that reports nothing waits for one that does
    return _sum(saving_s if ordered else 0.0, stop_s, slowest)


def _role(process: Process) -> RoleSwitch:
    marks = marks_of(Path(process.progress))
    loading = marks.get("loading", marks.get("loaded", marks.get("warm")))
    loaded = marks.get("loaded")
    return RoleSwitch(
        role=process.role,
        gpus=len(process.gpus),
        start_s=_between(process.released_boot_s, loading),
        load_s=_between(marks.get("loading"), loaded),
        warm_up_s=_between(loaded if loaded is not None else loading, marks.get("warm")),
    )


def _between(first: float | None, then: float | None) -> float | None:
    """Return the seconds from one to the other; None when one is unknown or the clock began again."""
    return None if first is None or then is None or then < first else then - first


def _sum(*seconds: float | None) -> float | None:
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None


def append_costs(path: Path, records: Iterable[SwitchRecord]) -> None:
    """Add records to a store, in place of a last line that a crash cut off; an OSError where it cannot."""
    data = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    if not data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        there = file.read()
        file.truncate(there.rfind(b"\n") + 1)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


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


def known_prices(
    stores: Iterable[Path], notes: Callable[[str], None]
) -> tuple[dict[str, SwitchPrice], dict[str, float]]:
    """Read what moves of tasks cost by the records in the stores, and the given starts (s) of GPU classes."""
    records: list[SwitchRecord] = []
    for store in stores:
        try:
            records += read_switch_costs(store) if store.exists() else []
        except ProfileError as problem:  # recorded moves count even where no price is known
            notes(f"warning: {problem.message}")
    given = [load_switching(path)[0] for path in sorted(shipped_folder().glob("*/switching.yaml"))]
    return switch_prices(records), {each.gpu_class: each.start_s.p90 for each in given}


def forecasts(
    steps: Iterable[Transition],
    manifest: Manifest | None,
    prices: Mapping[str, SwitchPrice],
    start_s: Mapping[str, float],
) -> tuple[StepForecast, ...]:
    """Forecast steps from recorded moves by task, or from given starts (s) by GPU class."""
    classes = _classes(manifest)
    found = []
    for step in steps:
        seconds: float | None = None
        origin = None
        gpu_class = classes.get(step.task, "")
        if step.action == "keep":
            seconds = 0.0
        elif step.action in ("resize", "move") and step.task in prices:
            seconds, origin = prices[step.task].p90_s, "measured"
        elif step.action != "stop" and gpu_class in start_s:
            seconds, origin = start_s[gpu_class], "assumed"
        counts = (step.gpus_before, step.gpus_after)
        found.append(StepForecast(step.id, step.task, step.action, *counts, step.after, seconds, origin))
    return tuple(found)


def _classes(manifest: Manifest | None) -> dict[str, str]:
    """Name a GPU class of every task that has GPUs."""
    if manifest is None:
        return {}
    known = {f"{node.id}:{gpu.index}": gpu.gpu_class for node in manifest.spec.nodes for gpu in node.gpus}
    return {
        task.id: known[f"{node}:{gpu}"]
        for task in manifest.spec.tasks
        for role in task.roles
        for node, gpu in role.ranks
    }
