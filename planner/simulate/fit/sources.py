"""Read recordings of every known kind; the contents of a file show its kind."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from libra_plan.errors import InputError, Where
from libra_plan.planner.simulate.fit.evidence import Recorded, ReplicaSizes, StageSeen, TrajectorySeen
from libra_plan.planner.simulate.fit.windows import add_windows
from libra_plan.planner.telemetry.readers import ReaderFacts, find_reader
from libra_plan.planner.telemetry.recording import RecordingReader, parts
from libra_plan.planner.telemetry.sample import GpuState
from libra_plan.planner.telemetry.work_windows import SkippedRecord, believable, find_recordings, read_windows
from libra_plan.profiles.document import shown
from libra_plan.profiles.importers.records import SourceFiles, read_source
from libra_plan.profiles.switch_costs import read_switch_costs
from libra_plan.profiles.traces import read_trace

__all__ = ["KINDS", "add_monitor", "read_recordings"]

KINDS = (
    "a counter's JSON lines, steps of loops, a monitor's recording, metrics of verl, NeMo-RL, slime or vLLM, "
    "lengths or trajectories a line, a simulator's trace, switch_costs.jsonl, the re-plan loop's record"
)
_HEAD_BYTES = 1 << 16
_GAP_S = 600.0
"""Time between two samples of a GPU beyond which nobody watched it."""

Line = TypeVar("Line")
Row = dict[str, Any]


def read_recordings(paths: list[Path], facts: ReaderFacts) -> Recorded:
    """Read all paths; `facts` has the task and the samples of a step, for logs that do not tell."""
    found = Recorded()
    for path in paths:
        if not path.exists():
            raise InputError("no such recording", way_out="check the path", where=Where(shown(path)))
        for file in _files(path):
            kind = _kind(file)
            kind.read(file, found, facts)
            found.used.append((shown(file), kind.name))
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    monitored = [path] if parts(path) else []
    others = sorted(
        each for each in path.rglob("*") if each.is_file() and not each.name.startswith(("telemetry-", "."))
    )
    if not monitored and not others:
        raise InputError("nothing was recorded there", allowed=KINDS, where=Where(shown(path)))
    return monitored + others


def _kind(path: Path) -> _Kind:
    """Return what a file is, by its beginning."""
    if path.is_dir() or path.name.startswith("telemetry-"):
        return _MONITOR
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    squeezed = head.replace('": "', '":"')
    for kind in _KINDS:
        if any(mark in squeezed for mark in kind.marks):
            return kind
    first = next((line.strip() for line in head.splitlines()[1:] if line.strip()), head.strip())
    if first.isdecimal():
        return _LENGTHS
    raise InputError("not a recording that can be read", allowed=KINDS, where=Where(shown(path)))


# ------------------------------------------------------------ one reader per kind


def _counter(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    rejected: list[SkippedRecord] = []
    windows = read_windows(find_recordings([path]), rejected)
    named = (msgspec.structs.replace(w, task=w.task or facts.task) for w in windows)
    add_windows(named, into, shown(path.name))
    into.left_out += [f"{each.where}: {each.reason}" for each in rejected]


def _log(name: str, path: Path, into: Recorded, facts: ReaderFacts) -> None:
    reader, rejected = find_reader(name), list[SkippedRecord]()
    source = read_source(path, reader.endings)
    windows = reader.read(SourceFiles(source.path, source.texts, source.sha256), facts, rejected)
    add_windows(believable(windows, rejected), into, shown(path.name))
    into.left_out += [f"{each.where}: {each.reason}" for each in rejected]


def _lengths(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    into.task(facts.task).trajectories += [TrajectorySeen(length) for length in read_trace(path)]


class _Step(msgspec.Struct, kw_only=True):
    """One line of a loop that writes its steps itself, of all ranks (examples/two_tasks)."""

    task: str
    role: str
    step: int
    world_size: int
    samples: int
    tokens: int
    step_s: float


def _decoded(path: Path, kind: type[Line], into: Recorded) -> Iterator[tuple[str, Line]]:
    """Decode a file line by line, each with its place; lines that are none are noted."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        where = f"{shown(path.name)}:{number}"
        try:
            yield where, msgspec.json.decode(line, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            if line.strip():
                into.left_out.append(f"{where}: {problem}")


def _steps(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    first: dict[tuple[str, str], int] = {}
    for _, one in _decoded(path, _Step, into):
        since = one.step - first.setdefault((one.task, one.role), one.step)
        seen, placed = into.task(one.task), (1,) * one.world_size
        seen.source = shown(path.name)
        seen.add_step(one.role, since, one.step_s, one.tokens, one.samples, placed)


def _trajectories(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    for where, one in _decoded(path, TrajectorySeen, into):
        if one.response_tokens < 1 or not all(math.isfinite(s) and s >= 0 for s in one.tool_s or ()):
            into.left_out.append(f"{where}: a length below 1 token, or a tool call below 0 s")
            continue
        into.task(one.task or facts.task).trajectories.append(one)


def _moves(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    for record in read_switch_costs(path):
        starts = [role.start_s for role in record.roles if role.start_s is not None]
        loads = [role.load_s for role in record.roles if role.load_s is not None]
        if starts:
            into.starts_s.append(max(starts))
        if loads:
            into.loads_s.append((record.task, max(loads)))
        if record.save_s:
            into.saves_s.append((record.task, record.save_s))


def _state(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    from libra_plan.planner.controller.store import StateStore

    store = StateStore.open(path, create=False)
    try:
        into.errors += [math.log(each.realised_s / each.predicted_s) for each in store.outcomes()]
    finally:
        store.close()


def add_monitor(path: Path, into: Recorded) -> None:
    """Count GPUs, the hours they were watched, and those that went from `ok` to `lost`."""
    reader = RecordingReader(path)
    nodes: dict[str, set[str]] = {}
    last: dict[str, tuple[str, float, GpuState]] = {}
    lost_since: dict[str, float] = {}
    for played in reader:
        sample = played.sample
        for gpu in sample.gpus:
            name = f"{sample.node}/{gpu.uuid or gpu.index}"
            nodes.setdefault(sample.node, set()).add(name)
            run, before_s, state = last.get(name, (played.run, sample.monotonic_s, gpu.state))
            seconds = sample.monotonic_s - before_s if run == played.run else _GAP_S + 1.0
            if 0.0 <= seconds <= _GAP_S:
                into.gpu_hours += seconds / 3600.0
                if gpu.state is GpuState.LOST and state is not GpuState.LOST:
                    into.failures += 1
                    lost_since[name] = sample.monotonic_s
            if gpu.state is GpuState.OK and run == played.run and name in lost_since:
                into.repairs_s.append(sample.monotonic_s - lost_since[name])
            if gpu.state is GpuState.OK or run != played.run:
                lost_since.pop(name, None)
            last[name] = (played.run, sample.monotonic_s, gpu.state)
    into.left_out += [f"{where}: torn" for where in reader.damaged]
    if nodes:
        into.gpus = max(into.gpus or 0, sum(map(len, nodes.values())))
        into.gpus_per_node = max(map(len, nodes.values()))


def _trace(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    """Read the steps, stages, moves and failures of a trace.

    A trace has no stage of rollouts: in a sync step it is what was before the first other stage. That of an
    async task overlaps with all others, and is not known.
    """
    kinds: defaultdict[str, list[Row]] = defaultdict(list)
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


def _add_task(task: str, kinds: defaultdict[str, list[Row]], into: Recorded) -> None:
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
    step: Row,
    own: list[Row],
    sizes: dict[str, ReplicaSizes],
    begun: float,
    serial: bool,
    shared: bool,
) -> None:
    """Note the stages of a step; of an async step its training alone."""
    if serial and "rollout" in sizes:
        first = min((row["begun_s"] for row in own), default=step["at_s"])
        wakes = 2 if shared else 0  # starts before the rollout, and before the stages after it
        rollout = StageSeen(number, first - begun, step["tokens"], sizes["rollout"], wakes=wakes)
        stages.setdefault("rollout", []).append(rollout)
    for role, row in {row["role"]: row for row in own}.items():
        if role == "train" or serial:
            stages.setdefault(role, []).append(StageSeen(number, row["seconds"], step["tokens"], sizes[role]))


class _Kind(NamedTuple):
    """A kind of recording: its name, what a file of it has in its beginning, and its reader."""

    name: str
    marks: tuple[str, ...]
    read: Callable[[Path, Recorded, ReaderFacts], None]


_MONITOR = _Kind(
    "a monitor's recording", ('"kind":"header"',), lambda path, into, facts: add_monitor(path, into)
)
_LENGTHS = _Kind("lengths of responses", (), _lengths)
_KINDS = (
    _Kind("the re-plan loop's record", ("SQLite format 3",), _state),
    _Kind("a trace of the simulator", ('"kind":"run"',), _trace),
    _MONITOR,
    _Kind("trajectories", ('"response_tokens"',), _trajectories),
    _Kind("costs of moves", ('"lost_s"',), _moves),
    _Kind("verl's metrics", ("timing_s/step", "perf/time_per_step"), partial(_log, "verl")),
    _Kind("NeMo-RL's metrics", ("timing/train/total_step_time",), partial(_log, "nemo-rl")),
    _Kind("slime's metrics", ("perf/step_time",), partial(_log, "slime")),
    _Kind("vLLM's pages of metrics", ("# scrape ",), partial(_log, "vllm")),
    _Kind("steps of loops", ('"began_s"',), _steps),
    _Kind("windows of our counters", ('"t_s"',), _counter),
)
"""The first kind whose mark is in a file is what the file is."""
