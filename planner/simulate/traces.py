"""Traces of a run: a JSON line per thing that happened, or Chrome's trace format (Perfetto reads it)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from libra_plan.planner.simulate.record import Record

__all__ = ["chrome_trace", "json_lines"]


def json_lines(record: Record) -> Iterator[bytes]:
    """Give steps, stages, changes, placements and failures, each kind in the order of time."""
    head = {"kind": "run", "world": record.world, "policy": record.policy, "seed": record.seed}
    yield msgspec.json.encode({**head, "hours": record.hours, "gpus": record.gpus})
    for kind, rows in (
        ("step", record.steps),
        ("stage", record.stages),
        ("change", record.changes),
        ("placement", record.placements),
    ):
        for row in rows:
            yield msgspec.json.encode({"kind": kind, **msgspec.to_builtins(row)})
    for at, gpu, repair in sorted(record.failures):
        yield msgspec.json.encode({"kind": "failure", "at_s": at, "gpu": gpu, "repair_s": repair})


def chrome_trace(record: Record) -> bytes:
    """Give one row per task and role: stages as slices, moves, steps and failures as marks. Microseconds."""
    tasks = {name: number for number, name in enumerate(sorted(record.arrived_s), start=1)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}}
        for name, number in tasks.items()
    ]
    for stage in record.stages:
        events.append(_slice(stage.role, tasks[stage.task], stage.role, stage.begun_s, stage.seconds,
                             {"gpus": stage.gpus}))  # fmt: skip
    for held in record.placements:
        seconds = held.to_s - held.from_s
        events.append(_slice("placed", tasks[held.task], "placement", held.from_s, seconds, dict(held.roles)))
    for change in record.changes:
        args = {"gpus_before": change.gpus_before, "gpus_after": change.gpus_after}
        events.append(_slice(change.why, tasks[change.task], "moves", change.at_s, change.start_s, args))
    for step in record.steps:
        events.append({"ph": "i", "s": "p", "name": f"step {step.step}", "pid": tasks[step.task],
                       "tid": "steps", "ts": step.at_s * 1e6})  # fmt: skip
    for at, gpu, repair in record.failures:
        events.append(_slice(f"{gpu} failed", 0, "failures", at, repair, {}))
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _slice(
    name: str, pid: int, tid: str, begun_s: float, seconds: float, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begun_s * 1e6,
        "dur": seconds * 1e6,
        "args": args,
    }
