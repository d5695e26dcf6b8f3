"""From a journal's times and the roles' reports to what a move cost."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from libra_plan.planner.launchers.manifest import NodeEntry, Transition
from libra_plan.planner.runtime.checkpoints import marks_of
from libra_plan.planner.runtime.state import Process, State
from libra_plan.profiles.switch_costs import RoleSwitch, SwitchRecord

__all__ = ["append_costs", "costs_of"]


def costs_of(state: State, steps: Iterable[Transition], node: NodeEntry, at: str) -> tuple[SwitchRecord, ...]:
    """List what each task that these steps moved has cost.

    Times come from the journal, which counts them across supervisors, and are None where the host
    was started again in between.
    """
    by_task: dict[str, list[Transition]] = {}
    for step in steps:
        if step.action != "keep":
            by_task.setdefault(step.task, []).append(step)
    return tuple(_record(state, task, moved, node, at) for task, moved in by_task.items())


def _record(state: State, task: str, steps: list[Transition], node: NodeEntry, at: str) -> SwitchRecord:
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
    """Give the seconds from one to the other; None when one is unknown or the clock began again."""
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
