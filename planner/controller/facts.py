"""Read what a look decides from: the workload with users' requests, priced, and its telemetry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from libra_plan.models.corrections import CORRECTIONS, read_corrections
from libra_plan.models.fits import fit_folder
from libra_plan.models.pricing.stages import TRAINING
from libra_plan.models.topology import Cluster, GpuId
from libra_plan.notes import Notes, log_note
from libra_plan.planner.controller.batch_steps import proposed_steps, steps_in_effect, with_steps
from libra_plan.planner.controller.hysteresis import ReplanPolicy
from libra_plan.planner.controller.job_queue import TaskRequest, paused_tasks, waits_of, with_requests
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState, read_clocks
from libra_plan.planner.inputs.cluster import ClusterFlags
from libra_plan.planner.inputs.problem import PricedProblem, PriceSettings, load, read_problem, with_workload
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.pricing import price_workload
from libra_plan.planner.problem import Problem
from libra_plan.planner.runtime.checkpoints import newest
from libra_plan.planner.telemetry.observations import CheckpointAge, Moment, Observations
from libra_plan.planner.telemetry.observe import RECENT_S, observe
from libra_plan.planner.telemetry.readers import paths_of
from libra_plan.planner.telemetry.recording import read_tail
from libra_plan.planner.telemetry.sample import NodeSample, main_process_memory_mib
from libra_plan.planner.telemetry.work_windows import (
    ClockAxis,
    SkippedRecord,
    WorkWindow,
    find_recordings,
    read_windows,
)
from libra_plan.profiles.document import decode, parse_document, read_text, shown
from libra_plan.profiles.schema import TaskSpec, WorkloadFile
from libra_plan.profiles.switch_costs import STORE

__all__ = ["Sources", "read_facts", "read_observations", "sources_of"]

_TAIL_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Sources:
    """The sources of a look: the profiles, the cluster, the folder of the running plan, its telemetry.

    `telemetry` are recordings of counters, `monitor` is one of `libra-plan monitor`, `observations` a file
    of them. Folders of checkpoints are named relative to `working_folder`. The last `window_s` seconds of
    recordings count.
    """

    profiles: str | Path
    run: Path
    settings: PriceSettings = field(default_factory=PriceSettings)
    telemetry: tuple[Path, ...] = ()
    monitor: Path | None = None
    observations: Path | None = None
    working_folder: Path = Path()
    window_s: float = RECENT_S


def sources_of(
    source: str | Path,
    run: str | Path,
    *,
    gpus: int | None = None,
    gpus_per_node: int = 8,
    gpu_class: str | None = None,
    cluster: str | Path | Cluster | None = None,
    local: bool = False,
    policy: str = "throughput",
    allow_prior: bool = False,
    ahead_steps: int | None = None,
    seed: int = 0,
    telemetry: str | Path | Sequence[str | Path] | None = None,
    monitor: str | Path | None = None,
    observations: str | Path | None = None,
) -> Sources:
    """Return the sources that a caller of `replan` named."""
    flags, folder = ClusterFlags(gpus, gpus_per_node, gpu_class, cluster, local), Path(run)
    return Sources(
        source,
        folder,
        PriceSettings(flags, policy, None, allow_prior, ahead_steps, seed),
        tuple(paths_of(telemetry)) if telemetry else (folder / "telemetry",),
        None if monitor is None else Path(monitor),
        None if observations is None else Path(observations),
    )


def read_facts(
    sources: Sources,
    policy: ReplanPolicy,
    notes: Notes,
    parent: Manifest,
    requests: tuple[TaskRequest, ...],
    state: LoopState,
) -> tuple[LoopInputs, WorkloadFile]:
    """Price the workload with users' requests, and read the telemetry of the running plan."""
    folder, settings = load(sources.profiles), sources.settings
    workload = folder.workload
    if workload is not None:
        workload = with_requests(workload, requests, waits_of(state))
        folder = with_workload(folder, with_steps(workload, steps_in_effect(sources.run)))
    corrections = sources.run / CORRECTIONS

    def priced(ahead_steps: int | None, notes: Notes) -> PricedProblem:
        return read_problem(
            folder,
            replace(settings, ahead_steps=ahead_steps),
            parent=parent,
            corrections=corrections if corrections.is_file() else None,
            switch_costs=(sources.run / STORE,),
            notes=notes,
        )

    ahead = priced(settings.ahead_steps, notes)
    problem = _of_wanted(ahead.problem)
    today = None
    if settings.ahead_steps is not None:
        today = _of_wanted(priced(None, lambda line: None).problem)
    workload = ahead.folder.workload
    assert workload is not None  # it has just been priced
    samples = [] if sources.monitor is None else _recent_samples(sources.monitor, sources.window_s)
    now = read_clocks()
    window = read_observations(sources, workload, problem, parent, state, now, samples, notes)
    if window is not None and samples:
        window = _with_proposed_steps(window, ahead, today or problem, samples, settings, corrections, policy)
    rigid = frozenset(
        task.id
        for task in workload.tasks
        if not task.lifecycle.reshardable and any(role.kind in TRAINING for role in task.roles)
    )
    paused = paused_tasks(requests) & problem.task_of.keys()
    return LoopInputs(problem, policy, now, window, frozenset(paused), rigid, today), workload


def _of_wanted(problem: Problem) -> Problem:
    """Drop running tasks that were removed: the next plan stops them."""
    running = tuple(held for held in problem.running if held.task in problem.task_of)
    return replace(problem, running=running)


def _with_proposed_steps(
    window: Observations,
    priced: PricedProblem,
    problem: Problem,
    samples: Iterable[NodeSample],
    settings: PriceSettings,
    corrections: Path,
    policy: ReplanPolicy,
) -> Observations:
    """Add larger micro-batches that fit beside the memory of others that the monitor sees on each GPU.

    What the file of observations proposes for a role counts before them.
    """
    folder, workload = priced.folder, priced.folder.workload
    fits = fit_folder(folder, allow_prior=settings.allow_prior)
    corrected = read_corrections(corrections)[0] if corrections.is_file() else None

    def price(changed: WorkloadFile) -> Problem:
        return price_workload(
            replace(folder, workload=changed),
            priced.cluster,
            fits=fits,
            seed=settings.seed,
            allow_prior=settings.allow_prior,
            corrections=corrected,
        )

    available_mib = _available_mib(samples, problem.cluster)
    if workload is None or not available_mib:
        return window
    known = {(step.task, step.role) for step in window.batch_steps}
    proposed = proposed_steps(problem, workload, available_mib, price, policy.trust)
    steps = tuple(step for step in proposed if (step.task, step.role) not in known)
    return msgspec.structs.replace(window, batch_steps=(*window.batch_steps, *steps))


def _available_mib(samples: Iterable[NodeSample], cluster: Cluster) -> dict[GpuId, float]:
    """Return the least memory that the main process of each GPU could have had, MiB."""
    by_uuid = {gpu.uuid: gpu.id for gpu in cluster.gpus.values() if gpu.uuid}
    least: dict[GpuId, float] = {}
    for gpu in (gpu for sample in samples for gpu in sample.gpus):
        name, mib = by_uuid.get(gpu.uuid or ""), main_process_memory_mib(gpu)
        if name is not None and mib is not None:
            least[name] = min(mib, least.get(name, mib))
    return least


# ---------------------------------------------------------------- telemetry


def read_observations(
    sources: Sources,
    workload: WorkloadFile,
    problem: Problem,
    parent: Manifest,
    state: LoopState,
    now: Moment,
    samples: list[NodeSample],
    notes: Notes = log_note,
) -> Observations | None:
    """Read all sources and put their observations together; None when no source has anything."""
    last = now if state.clock.last is None else state.clock.last
    placed_s = {
        clock.task: last.wall_s - (state.clock.loop_s - clock.placed_s)
        for clock in state.clocks
        if clock.placed_s is not None
    }
    return observe(
        list(_recent_records(sources, now.wall_s, notes)),
        problem,
        now.wall_s,
        samples=samples,
        placed_s=placed_s,
        generations={task.id: task.generation for task in parent.spec.tasks},
        checkpoints=tuple(_checkpoints(workload.tasks, parent, sources.working_folder, now.wall_s)),
        stated=_stated(sources.observations),
        notes=notes,
    )


def _stated(path: Path | None) -> Observations | None:
    """Read a file of observations."""
    if path is None:
        return None
    text, sha256 = read_text(path)
    return decode(parse_document(text, shown(path), sha256=sha256), Observations)


def _recent_records(sources: Sources, now_s: float, notes: Notes) -> Iterator[WorkWindow]:
    """Read the end of every recording of counters, no further back than `window_s` (A081)."""
    found = (path for path in sources.telemetry if path.is_file() or any(path.rglob("*.jsonl")))
    files = [file for path in found for file in find_recordings([path])]
    left_out: list[SkippedRecord] = []
    axis = ClockAxis()
    for record in read_windows(files, left_out, tail_bytes=_TAIL_BYTES):
        if axis.end_s(record) >= now_s - sources.window_s:
            yield record
    if left_out:
        notes(f"left out: {len(left_out)} lines; first: {left_out[0].where}: {left_out[0].reason}")


def _recent_samples(path: Path, window_s: float) -> list[NodeSample]:
    """Read the end of the monitor's recording."""
    return [each.sample for each in read_tail(path, window_s, [])] if path.exists() else []


def _checkpoints(
    tasks: Iterable[TaskSpec], parent: Manifest, working_folder: Path, now_s: float
) -> Iterator[CheckpointAge]:
    """Find the age of each task's newest complete checkpoint; None where it has none."""
    lifecycles = {task.id: task.lifecycle for task in parent.spec.tasks}
    for task in tasks:
        folder, lifecycle = task.lifecycle.checkpoint_dir, lifecycles.get(task.id)
        found = None if folder is None or lifecycle is None else newest(working_folder / folder, lifecycle)
        age_s = None if found is None else max(0.0, now_s - found.folder.stat().st_mtime)
        yield CheckpointAge(task.id, age_s)
