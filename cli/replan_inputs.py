"""What a look sees: the priced workload as users want it now, and what telemetry says of what runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from libra_plan.cli import render
from libra_plan.cli.inputs import read_inputs
from libra_plan.cli.move_costs import cost_files
from libra_plan.cli.observed import read_observed
from libra_plan.planner.controller.clocks import read_clocks

if TYPE_CHECKING:
    from libra_plan.cli.observed import Observed
    from libra_plan.models.topology import Cluster, GpuId
    from libra_plan.planner.controller.hysteresis import ReplanPolicy, TrustPolicy
    from libra_plan.planner.controller.job_queue import TaskRequest
    from libra_plan.planner.controller.replan import Facts
    from libra_plan.planner.controller.snapshot import LoopInputs
    from libra_plan.planner.controller.state import LoopState
    from libra_plan.planner.inputs.cluster import ClusterFlags
    from libra_plan.planner.inputs.problem import PricedProblem as Inputs
    from libra_plan.planner.launchers.manifest import Manifest
    from libra_plan.planner.problem import Problem
    from libra_plan.planner.telemetry.observations import (
        BatchStep,
        CheckpointAge,
        Observations,
    )
    from libra_plan.planner.telemetry.sample import NodeSample
    from libra_plan.planner.telemetry.work_windows import WorkWindow
    from libra_plan.profiles.schema import TaskSpec, WorkloadFile

__all__ = ["Sources", "facts_of", "observations_of"]

_TAIL_BYTES = 8 * 2**20
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


def facts_of(sources: Sources, policy: ReplanPolicy) -> Facts:
    """Return the function that reads what a look decides from."""

    def facts(
        parent: Manifest, requests: tuple[TaskRequest, ...], state: LoopState
    ) -> tuple[LoopInputs, WorkloadFile]:
        return _read(sources, parent, requests, state, policy)

    return facts


def _read(
    sources: Sources,
    parent: Manifest,
    requests: tuple[TaskRequest, ...],
    state: LoopState,
    policy: ReplanPolicy,
) -> tuple[LoopInputs, WorkloadFile]:
    """Price the workload as users want it now, and read what telemetry says."""
    from libra_plan.planner.controller.batch_steps import steps_in_effect, with_steps
    from libra_plan.planner.controller.job_queue import paused_tasks, waits_of, with_requests
    from libra_plan.planner.controller.snapshot import LoopInputs

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
            change=lambda workload: with_steps(with_requests(workload, requests, waits_of(state)), taken),
        )

    inputs = priced(sources.ahead_steps)
    problem = _of_wanted(inputs.problem)
    today = None if sources.ahead_steps is None else _of_wanted(priced(None).problem)
    workload = inputs.folder.workload
    assert workload is not None
    rigid = {
        task.id
        for task in workload.tasks
        if not task.lifecycle.reshardable and any(role.kind in _TRAINING for role in task.roles)
    }
    window = observations_of(sources, workload, problem, parent, state)
    if window is not None and sources.monitor is not None:
        steps = _batch_steps(sources, inputs, today or problem, observed, policy.trust)
        known = {(step.task, step.role) for step in window.batch_steps}
        steps = [step for step in steps if (step.task, step.role) not in known]
        window = msgspec.structs.replace(window, batch_steps=(*window.batch_steps, *steps))
    paused = paused_tasks(requests) & set(problem.task_of)
    return (
        LoopInputs(problem, policy, read_clocks(), window, paused, frozenset(rigid), today),
        workload,
    )


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


def _rooms(samples: Iterable[NodeSample], cluster: Cluster) -> dict[GpuId, float]:
    """Give the least memory, MiB, that the main process of each GPU could have had."""
    from libra_plan.planner.telemetry.sample import main_process_memory_mib

    by_uuid = {gpu.uuid: gpu.id for gpu in cluster.gpus.values() if gpu.uuid}
    least: dict[GpuId, float] = {}
    for gpu in (gpu for sample in samples for gpu in sample.gpus):
        name, room = by_uuid.get(gpu.uuid or ""), main_process_memory_mib(gpu)
        if name is not None and room is not None:
            least[name] = min(room, least.get(name, room))
    return least


def _of_wanted(problem: Problem) -> Problem:
    """Leave out what still runs of tasks that nobody wants any more: the next plan stops them."""
    running = tuple(held for held in problem.running if held.task in problem.task_of)
    return replace(problem, running=running)


def observations_of(
    sources: Sources, workload: WorkloadFile, problem: Problem, parent: Manifest, state: LoopState
) -> Observations | None:
    """Read all sources and put their observations together; None when no source has anything."""
    from libra_plan.planner.telemetry.observe import observe

    wall_s = read_clocks().wall_s
    placed = {clock.task: _placed_at(state, clock.task, wall_s) for clock in state.clocks}
    return observe(
        list(_recent(sources)),
        problem,
        wall_s,
        samples=_samples(sources),
        placed_s=placed,
        generations={task.id: task.generation for task in parent.spec.tasks},
        checkpoints=tuple(_checkpoints(workload.tasks, parent, sources.working_folder, wall_s)),
        stated=_told(sources.observations),
        notes=render.note,
    )


def _told(path: Path | None) -> Observations | None:
    from libra_plan.planner.telemetry.observations import Observations
    from libra_plan.profiles.document import decode, parse_document, read_text, shown

    if path is None:
        return None
    text, sha256 = read_text(path)
    return decode(parse_document(text, shown(path), sha256=sha256), Observations)


def _recent(sources: Sources) -> Iterator[WorkWindow]:
    """Read the end of every recording, no further back than the window is long (A081)."""
    from libra_plan.planner.telemetry.work_windows import ClockAxis, LeftOut, find_recordings, read_windows

    paths = [path for path in sources.counters if path.exists()]
    if not paths:
        return
    rejected: list[LeftOut] = []
    axis, wall_s = ClockAxis(), read_clocks().wall_s
    files = [file for path in paths for file in (find_recordings([path]) if _has_files(path) else ())]
    for window in read_windows(files, rejected, tail_bytes=_TAIL_BYTES):
        if axis.end_s(window) >= wall_s - sources.window_s:
            yield window
    if rejected:
        render.note(f"left out: {len(rejected)} lines; first: {rejected[0].where}: {rejected[0].reason}")


def _has_files(path: Path) -> bool:
    return path.is_file() or any(path.rglob("*.jsonl"))


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
    from libra_plan.planner.runtime.checkpoints import newest
    from libra_plan.planner.telemetry.observations import CheckpointAge

    lifecycles = {task.id: task.lifecycle for task in parent.spec.tasks}
    for task in tasks:
        folder, lifecycle = task.lifecycle.checkpoint_dir, lifecycles.get(task.id)
        found = None if folder is None or lifecycle is None else newest(working / folder, lifecycle)
        age_s = None if found is None else max(0.0, wall_s - found.folder.stat().st_mtime)
        yield CheckpointAge(task.id, age_s)


def _samples(sources: Sources) -> list[NodeSample]:
    """Read the end of the monitor's recording."""
    if sources.monitor is None or not sources.monitor.exists():
        return []
    from libra_plan.planner.telemetry.recording import read_tail

    return [played.sample for played in read_tail(sources.monitor, sources.window_s, [])]
