"""What a look sees: the priced workload as users want it now, and what telemetry says of what runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from libra_plan.cli import render
from libra_plan.cli.inputs import ClusterFlags, Inputs, read_inputs
from libra_plan.cli.move_costs import cost_files
from libra_plan.cli.observed import read_observed

if TYPE_CHECKING:
    from libra_plan.cli.observed import Observed
    from libra_plan.models.topology import Cluster, GpuId
    from libra_plan.planner.controller.job_queue import TaskBook
    from libra_plan.planner.controller.policy import TrustPolicy
    from libra_plan.planner.controller.runner import World
    from libra_plan.planner.controller.state import LoopState
    from libra_plan.planner.controller.window import (
        BatchStep,
        CheckpointAge,
        Event,
        Load,
        Now,
        Progress,
        Seen,
        Window,
    )
    from libra_plan.planner.launchers.manifest import Manifest
    from libra_plan.planner.problem import Problem
    from libra_plan.planner.telemetry.sample import Sample
    from libra_plan.planner.telemetry.work_windows import WorkWindow
    from libra_plan.profiles.schema import TaskSpec, WorkloadFile

__all__ = ["Sources", "now", "sense", "window_of"]

Key = tuple[str, str]
_TAIL_BYTES = 8 * 2**20
_FATAL_XIDS = frozenset({79, 95})  # off the bus; memory error that could not be contained
_LASTING = frozenset({"gpu-lost", "gpu-returned", "node-lost", "node-returned"})
_TRAINING = ("actor_train", "critic_train", "reward_train")


@dataclass(frozen=True)
class Sources:
    """Where a look reads from, as the user named it."""

    profiles: Path
    flags: ClusterFlags
    folder: Path
    policy: str = "throughput"
    counters: tuple[Path, ...] = ()
    monitor: Path | None = None
    observations: Path | None = None
    working_folder: Path = Path()
    window_s: float = 300.0
    allow_prior: bool = False
    seed: int = 0
    ahead_steps: int | None = None


def now() -> Now:
    """Read both clocks: the wall's, and that of this boot."""
    from libra_plan.planner.controller.window import Now
    from libra_plan.planner.runtime.supervisor import boot_clock

    return Now(time.time(), boot_clock(), _boot())  # noqa: TID251 - the one place where the loop meets a clock


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def sense(sources: Sources, parent: Manifest, book: TaskBook, state: LoopState, trust: TrustPolicy) -> World:
    """Price the workload as users want it now, and read what telemetry says."""
    from libra_plan.planner.controller.batch_steps import steps_in_effect, with_steps
    from libra_plan.planner.controller.job_queue import merged, waits_of
    from libra_plan.planner.controller.runner import World

    observed, taken = read_observed(None, sources.folder), steps_in_effect(sources.folder)

    def priced(ahead_steps: int | None) -> Inputs:
        return read_inputs(
            sources.profiles,
            sources.flags,
            policy=sources.policy,
            parent=parent,
            allow_prior=sources.allow_prior,
            seed=sources.seed,
            ahead_steps=ahead_steps,
            observed=observed,
            move_costs=cost_files(None, sources.folder, None),
            change=lambda workload: with_steps(merged(workload, book, waits_of(state)), taken),
        )

    inputs = priced(sources.ahead_steps)
    problem = _of_wanted(inputs.problem)
    today = None if sources.ahead_steps is None else _of_wanted(priced(None).problem)
    wanted = problem.task_of
    workload = inputs.folder.workload
    assert workload is not None
    rigid = {
        task.id
        for task in workload.tasks
        if not task.lifecycle.reshardable and any(role.kind in _TRAINING for role in task.roles)
    }
    window = window_of(sources, workload, problem, parent, state)
    if window is not None and sources.monitor is not None:
        steps = _batch_steps(sources, inputs, today or problem, observed, trust)
        said = {(step.task, step.role) for step in window.batch_steps}
        steps = [step for step in steps if (step.task, step.role) not in said]
        window = msgspec.structs.replace(window, batch_steps=(*window.batch_steps, *steps))
    return World(problem, window, workload, book.paused & set(wanted), frozenset(rigid), today)


def _batch_steps(
    sources: Sources, inputs: Inputs, problem: Problem, observed: Observed | None, trust: TrustPolicy
) -> list[BatchStep]:
    """Propose micro-batches that fit beside what the monitor sees others hold on each GPU."""
    from libra_plan.models.fits import fit_folder
    from libra_plan.planner.controller.batch_steps import proposed_steps
    from libra_plan.planner.pricing import price_workload

    fits = fit_folder(inputs.folder, allow_prior=sources.allow_prior)

    def priced(workload: WorkloadFile) -> Problem:
        return price_workload(
            replace(inputs.folder, workload=workload),
            inputs.cluster,
            fits=fits,
            seed=sources.seed,
            allow_prior=sources.allow_prior,
            corrections=None if observed is None else observed.file,
        )

    assert inputs.folder.workload is not None
    rooms = _rooms(_samples(sources), problem.cluster)
    return list(proposed_steps(problem, inputs.folder.workload, rooms, priced, trust)) if rooms else []


def _rooms(samples: Iterable[Sample], cluster: Cluster) -> dict[GpuId, float]:
    """Give the least memory, MiB, that the main process of each GPU could have had."""
    from libra_plan.planner.telemetry.memory_headroom import room_mib

    by_uuid = {gpu.uuid: gpu.id for gpu in cluster.gpus.values() if gpu.uuid}
    least: dict[GpuId, float] = {}
    for gpu in (gpu for sample in samples for gpu in sample.gpus):
        name, room = by_uuid.get(gpu.uuid or ""), room_mib(gpu)
        if name is not None and room is not None:
            least[name] = min(room, least.get(name, room))
    return least


def _of_wanted(problem: Problem) -> Problem:
    """Leave out what still runs of tasks that nobody wants any more: the next plan stops them."""
    running = tuple(held for held in problem.running if held.task in problem.task_of)
    return replace(problem, running=running)


def window_of(
    sources: Sources, workload: WorkloadFile, problem: Problem, parent: Manifest, state: LoopState
) -> Window | None:
    """Put the observations of all sources together; None when no source was named or has anything.

    How old they are goes by counters and the file of observations, the older of the two: a monitor sees
    GPUs, not work. Beside counters, of a file that nobody writes any more only losses and returns count.
    """
    from libra_plan.planner.controller.window import Window

    told = _told(sources.observations)
    work = [window for window in _recent(sources) if _of_today(window, parent)]
    samples = _samples(sources)
    if told is None and not work and not samples:
        return None
    wall_s = now().wall_s
    ends = [window.utc_s for window in work if window.utc_s is not None]
    untils = [max(ends)] if ends else []
    if told is not None and work and told.until_s < wall_s - sources.window_s:
        render.note(f"the file of observations is {wall_s - told.until_s:.0f} s old, only its losses count")
        told = Window(told.until_s, events=tuple(each for each in told.events if each.kind.value in _LASTING))
    elif told is not None:
        untils.append(told.until_s)
    until = min(untils, default=0.0)
    own = Window(
        until,
        tuple(_seen(work, workload, state, wall_s)),
        tuple(_loads(work, _busy(samples, problem))),
        tuple(_progress(work, workload, state, wall_s)),
        tuple(_checkpoints(workload.tasks, parent, sources.working_folder, wall_s)),
        (),
        tuple(_gpu_events(samples, problem.cluster)),
    )
    return own if told is None else _joined(own, told, until)


def _of_today(window: WorkWindow, parent: Manifest) -> bool:
    """Say whether a window is of no process that an earlier plan started."""
    if window.generation is None:
        return True
    today = {task.id: task.generation for task in parent.spec.tasks}
    return window.generation >= today.get(window.task, 0)


def _told(path: Path | None) -> Window | None:
    from libra_plan.planner.controller.window import Window
    from libra_plan.profiles.document import decode, parse_document, read_text, shown

    if path is None:
        return None
    text, sha256 = read_text(path)
    return decode(parse_document(text, shown(path), sha256=sha256), Window)


def _joined(own: Window, told: Window, until_s: float) -> Window:
    """Join two windows; what a file of observations says of something counts before what was derived."""
    from libra_plan.planner.controller.window import Window

    checkpoints = {each.task: each for each in (*own.checkpoints, *told.checkpoints)}
    progress = {each.task: each for each in (*own.progress, *told.progress)}
    loads = {(each.task, each.role): each for each in (*own.loads, *told.loads)}
    return Window(
        until_s,
        (*own.seen, *told.seen),
        tuple(loads.values()),
        tuple(progress.values()),
        tuple(checkpoints.values()),
        told.batch_steps,
        (*own.events, *told.events),
    )


def _recent(sources: Sources) -> Iterator[WorkWindow]:
    """Read the end of every recording, no further back than the window is long (A081)."""
    from libra_plan.planner.telemetry.work_windows import Axis, Rejected, find_recordings, read_windows

    paths = [path for path in sources.counters if path.exists()]
    if not paths:
        return
    rejected: list[Rejected] = []
    axis, wall_s = Axis(), now().wall_s
    files = [file for path in paths for file in (find_recordings([path]) if _has_files(path) else ())]
    for window in read_windows(files, rejected, tail_bytes=_TAIL_BYTES):
        if axis.end_s(window) >= wall_s - sources.window_s:
            yield window
    if rejected:
        render.note(f"left out: {len(rejected)} lines; first: {rejected[0].where}: {rejected[0].reason}")


def _has_files(path: Path) -> bool:
    return path.is_file() or any(path.rglob("*.jsonl"))


def _of_role(work: Iterable[WorkWindow], workload: WorkloadFile) -> dict[tuple[str, str], list[WorkWindow]]:
    """Group windows by role, those of its lowest data-parallel rank only: ranks take steps together."""
    names = [role.id for task in workload.tasks for role in task.roles]
    only = {r.id: task.id for task in workload.tasks for r in task.roles if names.count(r.id) == 1}
    found: dict[tuple[str, str], list[WorkWindow]] = {}
    for window in work:
        task = window.task or only.get(window.role)
        if task is not None:  # whose it is cannot be told where several tasks have such a role
            found.setdefault((task, window.role), []).append(window)
    lowest = {key: min(each.dp_rank for each in group) for key, group in found.items()}
    return {key: [w for w in group if w.dp_rank == lowest[key]] for key, group in found.items()}


def _seen(
    work: Sequence[WorkWindow], workload: WorkloadFile, state: LoopState, wall_s: float
) -> Iterator[Seen]:
    """Give working seconds per step of each role whose windows count whole steps.

    Windows from before the task was placed as it is tell of another form, and are left out.
    Windows that say batch and length count passes of the engine; `profile drift` compares those.
    """
    from libra_plan.planner.controller.window import Seen

    for (task, role), windows in sorted(_of_role(work, workload).items()):
        since = _placed_at(state, task, wall_s)
        whole = [
            each
            for each in windows
            if each.steps
            and not (each.batch_sequences and each.seq_len_tokens)
            and (each.utc_s is None or each.utc_s - each.length_s >= since)
        ]
        steps = sum(each.steps or 0.0 for each in whole)
        seconds = sum(each.working_s for each in whole)
        if steps and seconds > 0:
            yield Seen(task, role, seconds / steps)


def _loads(work: Sequence[WorkWindow], busy: Mapping[Key, tuple[float, ...]]) -> Iterator[Load]:
    """Tell of each role how stale its samples are, and how busy each of its GPUs is."""
    from libra_plan.planner.controller.window import Load

    stalest: dict[Key, float] = {}
    for window in work:
        if window.task and window.stalest is not None:
            key = (window.task, window.role)
            stalest[key] = max(stalest.get(key, 0.0), window.stalest)
    for task, role in sorted({*stalest, *busy}):
        yield Load(task, role, None, stalest.get((task, role)), busy.get((task, role), ()))


def _busy(samples: Sequence[Sample], problem: Problem) -> dict[Key, tuple[float, ...]]:
    """Give the mean utilization (0 to 1) of each GPU of roles that have their GPUs to themselves."""
    seen: dict[str, list[float]] = {}
    for sample in samples:
        for gpu in sample.gpus:
            if gpu.uuid and gpu.utilization_percent is not None:
                seen.setdefault(gpu.uuid, []).append(gpu.utilization_percent / 100.0)
    found: dict[Key, tuple[float, ...]] = {}
    for held in problem.running:
        groups = [role.share_group for role in held.roles]
        for role in held.roles:
            known = (problem.cluster.gpus.get(gpu) for gpus in role.replicas for gpu in gpus)
            uuids = [gpu.uuid for gpu in known if gpu is not None and gpu.uuid in seen]
            if uuids and groups.count(role.share_group) == 1:
                found[held.task, role.role] = tuple(fmean(seen[uuid]) for uuid in uuids if uuid)
    return found


def _progress(
    work: Sequence[WorkWindow], workload: WorkloadFile, state: LoopState, wall_s: float
) -> Iterator[Progress]:
    """Count steps since each task was placed, as far back as was read."""
    from libra_plan.planner.controller.window import Progress

    steps: dict[str, float] = {}
    for (task, _), windows in _of_role(work, workload).items():
        since = _placed_at(state, task, wall_s)
        done = sum(each.steps or 0.0 for each in windows if each.utc_s is None or each.utc_s > since)
        steps[task] = max(steps.get(task, 0.0), done)
    yield from (Progress(task, done) for task, done in sorted(steps.items()))


def _placed_at(state: LoopState, task: str, wall_s: float) -> float:
    """Give when a task was placed as it is, seconds since 1970; 0 when that was before the loop began."""
    placed_s, last = state.clock_for(task).placed_s, state.clock.last
    if placed_s is None:
        return 0.0
    return (wall_s if last is None else last.wall_s) - (state.clock.loop_s - placed_s)


def _checkpoints(
    tasks: Iterable[TaskSpec], parent: Manifest, working: Path, wall_s: float
) -> Iterator[CheckpointAge]:
    """Give the age of each task's newest complete checkpoint; None where it has none."""
    from libra_plan.planner.controller.window import CheckpointAge
    from libra_plan.planner.runtime.checkpoints import newest

    lifecycles = {task.id: task.lifecycle for task in parent.spec.tasks}
    for task in tasks:
        folder, lifecycle = task.lifecycle.checkpoint_dir, lifecycles.get(task.id)
        found = None if folder is None or lifecycle is None else newest(working / folder, lifecycle)
        age_s = None if found is None else max(0.0, wall_s - found.folder.stat().st_mtime)
        yield CheckpointAge(task.id, age_s)


def _samples(sources: Sources) -> list[Sample]:
    """Read the end of the monitor's recording."""
    if sources.monitor is None or not sources.monitor.exists():
        return []
    from libra_plan.planner.telemetry.reader import read_tail

    return [played.sample for played in read_tail(sources.monitor, sources.window_s, [])]


def _gpu_events(samples: Sequence[Sample], cluster: Cluster) -> Iterator[Event]:
    """Tell of GPUs that the monitor lost: off the bus, or after an error that no process survives."""
    from libra_plan.planner.controller.window import Event, EventKind
    from libra_plan.planner.telemetry.sample import GpuState

    by_uuid = {gpu.uuid: gpu.id for gpu in cluster.gpus.values() if gpu.uuid}
    said: dict[str, str] = {}
    for sample in samples:
        for gpu in sample.gpus:
            fatal = _FATAL_XIDS & set(gpu.xids or ())
            if gpu.uuid and (gpu.state is GpuState.LOST or fatal):
                said[gpu.uuid] = f"XID {min(fatal)}" if fatal else said.get(gpu.uuid, "off the bus")
    for uuid, detail in sorted(said.items()):
        if uuid in by_uuid:
            yield Event(EventKind.GPU_LOST, gpu=by_uuid[uuid], detail=detail)
