"""The state that a journal describes: processes that may still run, and the progress of a hand-over.

The manifests of a run are kept beside its journal, which names them by digest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path

import msgspec

from libra_plan.planner.launchers.document import manifest_to_json, read_manifest
from libra_plan.planner.launchers.manifest import Manifest, Transition
from libra_plan.planner.runtime import journal as r
from libra_plan.profiles.durable import write_atomically

__all__ = [
    "Process",
    "RunState",
    "StopMarks",
    "after",
    "keep_manifest",
    "read_kept_manifest",
    "state_of",
]


class Process(r.RoleStart, frozen=True, kw_only=True):
    """A started role that is not proven gone.

    `turn` numbers the direction it was started in; it is `established` once its step was through.
    """

    turn: int
    established: bool = False
    pid: int | None = None
    start_time: float | None = None
    host: str | None = None
    released_boot_s: float | None = None


@dataclass(frozen=True)
class StopMarks:
    """The actions taken to stop a task: the marks that a crash must not lose."""

    ordered: r.Ordered | None = None
    saved: r.Saved | None = None
    stopping: bool = False
    killing: bool = False


_UNTOUCHED = StopMarks()


@dataclass(frozen=True)
class RunState:
    """The whole state that a journal describes.

    `running` is the digest of the manifest that the last finished hand-over left. While one is
    `open`, `steps` lead to `target`, or `back` from it; `through` and `failed` are ids of steps.
    `timeline` (seconds since the host was started) and `saves` tell of the last hand-over, by task.
    """

    launch_id: str = ""
    node: str = ""
    working_folder: str = ""
    running: str | None = None
    target: str | None = None
    open: bool = False
    back: bool = False
    force: bool = False
    reason: str = ""
    stuck: str = ""
    turn: int = 0
    first_turn: int = 0
    starts: int = 0
    steps: tuple[Transition, ...] = ()
    through: frozenset[str] = frozenset()
    failed: dict[str, str] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()
    turns: dict[str, StopMarks] = field(default_factory=dict)
    timeline: dict[str, dict[str, float]] = field(default_factory=dict)
    saves: dict[str, r.Saved] = field(default_factory=dict)

    @property
    def wanted(self) -> str | None:
        """The digest of the manifest that the open hand-over leads to."""
        return self.running if self.back else self.target

    def of(self, task: str) -> tuple[Process, ...]:
        """List the processes of a task that are not proven gone."""
        return tuple(process for process in self.processes if process.task == task)

    def leaving(self, task: str) -> tuple[Process, ...]:
        """List those of its processes that were started before this turn, and must end if the task moves."""
        return tuple(process for process in self.of(task) if process.turn != self.turn)

    def arriving(self, task: str) -> tuple[Process, ...]:
        """List its processes that were started in this turn."""
        return tuple(process for process in self.of(task) if process.turn == self.turn)

    def stop_of(self, task: str) -> StopMarks:
        """Return what was done to stop a task."""
        return self.turns.get(task, _UNTOUCHED)

    def held_by(self, tasks: Collection[str], *, others: bool = False) -> frozenset[str]:
        """Return the GPUs (`node:index`) that processes of these tasks, or of all others, may still hold."""
        return frozenset(
            gpu for one in self.processes if (one.task in tasks) is not others for gpu in one.gpus
        )


def state_of(entries: Iterable[r.Entry]) -> RunState:
    """Compute the state from the entries of a journal."""
    return reduce(after, entries, RunState())


def after(state: RunState, entry: r.Entry) -> RunState:
    """Return the state after one more entry."""
    one = entry.record
    if isinstance(one, r.Opened):
        return replace(state, launch_id=one.launch_id, node=one.node, working_folder=one.working_folder)
    if isinstance(one, r.Begun | r.Back | r.Finished | r.Stuck):
        return _plan(state, one)
    if isinstance(one, r.Intent | r.Started | r.Released | r.Never):
        return _process(state, one, entry.boot_s)
    if isinstance(one, r.StepFailed):
        return replace(state, failed={**state.failed, one.step: one.reason})
    if isinstance(one, r.Through):
        return _through(state, one.step)
    return _stop(state, one, entry.boot_s)


def _plan(state: RunState, one: r.Begun | r.Back | r.Finished | r.Stuck) -> RunState:
    if isinstance(one, r.Stuck):
        return replace(state, stuck=one.reason)
    if isinstance(one, r.Finished):
        return replace(
            state, running=one.running, target=None, open=False, back=False, steps=(), stuck="", turns={}
        )
    cleared = replace(
        state,
        open=True,
        force=one.force,
        steps=one.steps,
        turn=state.turn + 1,
        through=frozenset(),
        failed={},
        stuck="",
    )
    if isinstance(one, r.Back):
        return replace(cleared, back=True, reason=one.reason)
    return replace(
        cleared,
        target=one.target,
        back=False,
        reason="",
        first_turn=cleared.turn,
        turns={},
        timeline={},
        saves={},
    )


def _through(state: RunState, step: str) -> RunState:
    task = next(each.task for each in state.steps if each.id == step)
    processes = tuple(
        msgspec.structs.replace(each, established=True)
        if each.task == task and each.turn == state.turn
        else each
        for each in state.processes
    )
    return replace(state, through=state.through | {step}, processes=processes)


def _process(state: RunState, one: r.Intent | r.Started | r.Released | r.Never, boot_s: float) -> RunState:
    if isinstance(one, r.Intent):
        made = Process(**msgspec.structs.asdict(one), turn=state.turn)
        return replace(state, processes=(*state.processes, made), starts=max(state.starts, one.start))
    if isinstance(one, r.Never):
        return replace(state, processes=tuple(each for each in state.processes if each.start != one.start))
    changes: dict[str, float | int | str] = {"released_boot_s": boot_s}
    if isinstance(one, r.Started):
        changes = {"pid": one.pid, "start_time": one.start_time, "host": one.host}
    return replace(
        state,
        processes=tuple(
            msgspec.structs.replace(each, **changes) if each.start == one.start else each
            for each in state.processes
        ),
    )


def _stop(
    state: RunState, one: r.Ordered | r.Saved | r.Withdrawn | r.Stopping | r.Killing | r.Gone, boot_s: float
) -> RunState:
    now = state.stop_of(one.task)
    times = {**state.timeline.get(one.task, {}), type(one).__name__.lower(): boot_s}
    state = replace(state, timeline={**state.timeline, one.task: times})
    if isinstance(one, r.Saved):
        state = replace(state, saves={**state.saves, one.task: one})
    if isinstance(one, r.Gone):
        processes = tuple(each for each in state.processes if each.task != one.task)
        turns = {task: turn for task, turn in state.turns.items() if task != one.task}
        return replace(state, processes=processes, turns=turns)
    if isinstance(one, r.Ordered):
        now = StopMarks(ordered=one)
    elif isinstance(one, r.Saved):
        now = replace(now, saved=one)
    elif isinstance(one, r.Withdrawn):
        now = _UNTOUCHED
    elif isinstance(one, r.Stopping):
        now = replace(now, stopping=True)
    else:
        now = replace(now, killing=True)
    return replace(state, turns={**state.turns, one.task: now})


def keep_manifest(folder: Path, manifest: Manifest) -> None:
    """Keep a manifest, before the journal names it."""
    path = _kept(folder, manifest.metadata.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, manifest_to_json(manifest).encode())


def read_kept_manifest(folder: Path, digest: str | None) -> Manifest | None:
    """Read a manifest that the journal names, and check that it is unchanged; None where it names none."""
    return None if digest is None else read_manifest(_kept(folder, digest))


def _kept(folder: Path, digest: str) -> Path:
    return folder / "plans" / f"{digest.removeprefix('sha256:')}.json"
