"""A simulator's JSONL trace, read back as if it were a recording of a cluster."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.planner.simulate.fit.recorded import Placed, Recorded, StageSeen
from libra_plan.profiles.document import shown

__all__ = ["add_trace"]

_Row = dict[str, Any]


def add_trace(path: Path, into: Recorded) -> None:
    """Take in steps, stages, moves and failures.

    A trace has no stage of rollouts: in a sync step it is what was before the first other stage. That of an
    async task overlaps with all others, and is not told.
    """
    kinds: defaultdict[str, list[_Row]] = defaultdict(list)
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
            kinds[row["kind"]].append(row)
        except (msgspec.MsgspecError, KeyError):
            into.left_out.append(f"{shown(path.name)}:{number}: no line of a trace")
    head = kinds["run"][0]
    into.gpus = max(into.gpus or 0, int(head["gpus"]))
    into.gpu_hours += float(head["gpus"]) * float(head["hours"])
    into.failures += sum(row["at_s"] <= head["hours"] * 3600.0 for row in kinds["failure"])
    into.repairs_s += [row["repair_s"] for row in kinds["failure"]]
    into.whole_starts += [
        (row["task"], row["why"] == "move", row["start_s"]) for row in kinds["change"] if row["start_s"] > 0
    ]
    for task in dict.fromkeys(row["task"] for row in kinds["step"]):
        into.task(task).source = shown(path.name)
        _add_task(task, kinds, into)


def _add_task(task: str, kinds: defaultdict[str, list[_Row]], into: Recorded) -> None:
    seen = into.task(task)
    stages = sorted((row for row in kinds["stage"] if row["task"] == task), key=lambda row: row["begun_s"])
    held = [row for row in kinds["placement"] if row["task"] == task]
    steps = [row for row in kinds["step"] if row["task"] == task]
    serial = not any(row["stale"] for row in steps)
    ended = 0.0
    for number, step in enumerate(steps):
        at = step["at_s"]
        placement = next((row for row in held if row["from_s"] <= at <= row["to_s"] + 1e-9), None)
        if placement is None:
            continue
        begun = max(ended, placement["from_s"])
        own = [
            row for row in stages if begun <= row["begun_s"] and row["begun_s"] + row["seconds"] <= at + 1e-6
        ]
        seen.responses.append((number, step["mean_response"]))
        seen.wholes.append(step["tokens"] / step["samples"])
        seen.samples.append(float(step["samples"]))
        sizes = {role: tuple(gpus) for role, gpus in placement["replicas"]}
        shared = len(sizes) > 1 and len(placement["pools"]) == 1
        _add_stages(seen.stages, number, step, own, sizes, begun, serial, shared)
        ended = at


def _add_stages(
    stages: dict[str, list[StageSeen]],
    number: int,
    step: _Row,
    own: list[_Row],
    sizes: dict[str, Placed],
    begun: float,
    serial: bool,
    shared: bool,
) -> None:
    """Note the stages of a step; of an async step its training alone."""
    if serial and "rollout" in sizes:
        first = min((row["begun_s"] for row in own), default=step["at_s"])
        wakes = 2 if shared else 0  # before the rollout, and before what follows it
        rollout = StageSeen(number, first - begun, step["tokens"], sizes["rollout"], wakes=wakes)
        stages.setdefault("rollout", []).append(rollout)
    for role, row in {row["role"]: row for row in own}.items():
        if role == "train" or serial:
            stages.setdefault(role, []).append(StageSeen(number, row["seconds"], step["tokens"], sizes[role]))
