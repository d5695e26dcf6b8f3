"""Read recordings of any kind that we know, by what is in them: nobody need say what a file is."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.errors import InputError, Where
from libra_plan.planner.simulate.fit.recorded import Recorded, TrajectorySeen
from libra_plan.planner.simulate.fit.simulated import add_trace
from libra_plan.planner.simulate.fit.watched import add_monitor
from libra_plan.planner.simulate.fit.windows import add_step, add_windows
from libra_plan.planner.telemetry.readers import ReaderFacts, find_reader
from libra_plan.planner.telemetry.recording import parts
from libra_plan.planner.telemetry.work_windows import LeftOut, believable, find_recordings, read_windows
from libra_plan.profiles.document import shown
from libra_plan.profiles.importers.records import SourceFiles, read_source
from libra_plan.profiles.switch_costs import read_switch_costs
from libra_plan.profiles.traces import read_trace

__all__ = ["KINDS", "read_recordings"]

KINDS = (
    "a counter's JSON lines, steps of loops, a monitor's recording, metrics of verl, NeMo-RL, slime or vLLM, "
    "lengths or trajectories a line, a simulator's trace, switch_costs.jsonl, the re-plan loop's record"
)
_HEAD_BYTES = 1 << 16
_MARKS: tuple[tuple[str, str], ...] = (
    ("SQLite format 3", "state"),
    ('"kind":"run"', "trace"),
    ('"kind":"header"', "monitor"),
    ('"response_tokens"', "trajectories"),
    ('"lost_s"', "moves"),
    ("timing_s/step", "verl"),
    ("perf/time_per_step", "verl"),
    ("timing/train/total_step_time", "nemo-rl"),
    ("perf/step_time", "slime"),
    ("# scrape ", "vllm"),
    ('"began_s"', "steps"),
    ('"t_s"', "counter"),
)


def read_recordings(paths: list[Path], facts: ReaderFacts) -> Recorded:
    """Read all paths; `facts` has the task and the samples of a step, for logs that do not tell."""
    found = Recorded()
    for path in paths:
        if not path.exists():
            raise InputError("no such recording", way_out="check the path", where=Where(shown(path)))
        for file in _files(path):
            kind = _kind(file)
            _READ[kind](file, found, facts)
            found.used.append((shown(file), _NAMES[kind]))
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


def _kind(path: Path) -> str:
    """Tell what a file is by its beginning."""
    if path.is_dir() or path.name.startswith("telemetry-"):
        return "monitor"
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES).decode("utf-8", "replace")
    squeezed = head.replace('": "', '":"')
    for mark, kind in _MARKS:
        if mark in squeezed:
            return kind
    first = next((line.strip() for line in head.splitlines()[1:] if line.strip()), head.strip())
    if first.isdecimal():
        return "lengths"
    raise InputError("not a recording that can be read", allowed=KINDS, where=Where(shown(path)))


def _counter(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    rejected: list[LeftOut] = []
    windows = read_windows(find_recordings([path]), rejected)
    named = (msgspec.structs.replace(w, task=w.task or facts.task) for w in windows)
    add_windows(named, into, shown(path.name))
    _note(into, rejected)


def _log(name: str) -> Callable[[Path, Recorded, ReaderFacts], None]:
    def read(path: Path, into: Recorded, facts: ReaderFacts) -> None:
        reader, rejected = find_reader(name), list[LeftOut]()
        source = read_source(path, reader.endings)
        windows = reader.read(SourceFiles(source.path, source.texts, source.sha256), facts, rejected)
        add_windows(believable(windows, rejected), into, shown(path.name))
        _note(into, rejected)

    return read


def _note(into: Recorded, rejected: list[LeftOut]) -> None:
    into.left_out += [f"{each.where}: {each.reason}" for each in rejected]


def _lengths(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    seen = into.task(facts.task)
    seen.trajectories += [TrajectorySeen(length) for length in read_trace(path)]


class _Step(msgspec.Struct, kw_only=True):
    """One line of a loop that writes its steps itself, of all ranks (examples/two_tasks)."""

    task: str
    role: str
    step: int
    world_size: int
    samples: int
    tokens: int
    step_s: float


def _steps(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    first: dict[tuple[str, str], int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            one = msgspec.json.decode(line, type=_Step)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            if line.strip():
                into.left_out.append(f"{shown(path.name)}:{number}: {problem}")
            continue
        since = one.step - first.setdefault((one.task, one.role), one.step)
        seen, placed = into.task(one.task), (1,) * one.world_size
        seen.source = shown(path.name)
        add_step(seen, one.role, since, one.step_s, one.tokens, one.samples, placed)


class _Trajectory(msgspec.Struct, kw_only=True):
    """One line of a trajectory recording."""

    response_tokens: int
    prompt_tokens: int | None = None
    step: int | None = None
    turns: int | None = None
    tool_s: tuple[float, ...] | None = None
    task: str | None = None


def _trajectories(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        where = f"{shown(path.name)}:{number}"
        try:
            one = msgspec.json.decode(line, type=_Trajectory)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            if line.strip():
                into.left_out.append(f"{where}: {problem}")
            continue
        calls = one.tool_s or ()
        if one.response_tokens < 1 or not all(math.isfinite(each) and each >= 0 for each in calls):
            into.left_out.append(f"{where}: a length below 1 token, or a tool call below 0 s")
            continue
        into.task(one.task or facts.task).trajectories.append(
            TrajectorySeen(one.response_tokens, one.prompt_tokens, one.step, one.turns, one.tool_s)
        )


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


def _trace(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    add_trace(path, into)


def _monitor(path: Path, into: Recorded, facts: ReaderFacts) -> None:
    add_monitor(path, into)


_READ: dict[str, Callable[[Path, Recorded, ReaderFacts], Any]] = {
    "counter": _counter,
    "steps": _steps,
    "verl": _log("verl"),
    "nemo-rl": _log("nemo-rl"),
    "slime": _log("slime"),
    "vllm": _log("vllm"),
    "lengths": _lengths,
    "trajectories": _trajectories,
    "moves": _moves,
    "state": _state,
    "trace": _trace,
    "monitor": _monitor,
}
_NAMES = {
    "counter": "windows of our counters",
    "steps": "steps of loops",
    "verl": "verl's metrics",
    "nemo-rl": "NeMo-RL's metrics",
    "slime": "slime's metrics",
    "vllm": "vLLM's pages of metrics",
    "lengths": "lengths of responses",
    "trajectories": "trajectories",
    "moves": "costs of moves",
    "state": "the re-plan loop's record",
    "trace": "a trace of the simulator",
    "monitor": "a monitor's recording",
}
