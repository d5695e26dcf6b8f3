"""One look with everything around it, and what users ask of the queue: the public functions of the loop.

    recover ─▶ read manifest, state, facts ─▶ reconcile ─▶ record (one transaction) ─▶ manifest ─▶ settled

Killed anywhere, the folder holds the old manifest or the new one, and the record what was decided; the
next run finishes what was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libra_plan.errors import InputError, LockedError, ManifestError, StateError, writing
from libra_plan.models.topology import Cluster
from libra_plan.notes import Notes, log_note
from libra_plan.planner.configurations.keeping import kept_configurations
from libra_plan.planner.controller import job_queue
from libra_plan.planner.controller.batch_steps import keep_steps
from libra_plan.planner.controller.configuration_values import ValueCache
from libra_plan.planner.controller.estimators import running_options
from libra_plan.planner.controller.facts import Sources, read_clocks, read_facts
from libra_plan.planner.controller.hysteresis import ReplanPolicy, read_policy
from libra_plan.planner.controller.job_queue import TaskRequest
from libra_plan.planner.controller.reconcile import Reconciled, reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import Decision, LoopState
from libra_plan.planner.controller.store import StateStore, open_record, require_folder
from libra_plan.planner.inputs.cluster import ClusterFlags
from libra_plan.planner.inputs.problem import PriceSettings
from libra_plan.planner.launchers.build import build_manifest, says_the_same
from libra_plan.planner.launchers.document import manifest_to_json
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.store import CURRENT, lock_folder, read_current, write_manifest
from libra_plan.profiles.catalog import load_workload
from libra_plan.profiles.schema import WorkloadFile

__all__ = [
    "Replanned",
    "TaskQueue",
    "add_tasks",
    "change_task",
    "list_tasks",
    "look",
    "recover",
    "replan",
]

LOCK = ".replan.lock"
_POLL_S = 0.2
_FORGET_EVERY = 100

Facts = Callable[[Manifest, tuple[TaskRequest, ...], LoopState], tuple[LoopInputs, WorkloadFile | None]]
"""Reads what a look decides from, given the running manifest, the users' requests and the state."""


@dataclass(frozen=True)
class Replanned:
    """What a look did: its number, its decision, what became of it, and the plan's generation after it.

    `outcome` is `kept`, `dry-run` or `applied`.
    """

    number: int
    decision: Decision
    outcome: str
    generation: int
    horizon_s: float


def replan(
    source: str | Path,
    *,
    run: str | Path = "run",
    gpus: int | None = None,
    gpus_per_node: int = 8,
    gpu_class: str | None = None,
    cluster: str | Path | Cluster | None = None,
    local: bool = False,
    policy: str = "throughput",
    allow_prior: bool = False,
    ahead_steps: int | None = None,
    seed: int = 0,
    telemetry: Sequence[str | Path] | None = None,
    monitor: str | Path | None = None,
    observations: str | Path | None = None,
    replan_policy: str | Path | None = None,
    state: str | None = None,
    dry_run: bool = False,
    wait_s: float = 0.0,
    cache_mib: float = 256.0,
    notes: Notes = log_note,
) -> Replanned:
    """Look once at what runs, and write a better plan when a change has paid for itself.

    Nothing is started or stopped: `apply` moves what runs to the new manifest.

    Parameters
    ----------
    source, gpus, gpus_per_node, gpu_class, cluster, local, policy, allow_prior, ahead_steps, seed
        As in `price`.
    run
        The folder of the running plan, as `solve` wrote it.
    telemetry
        Recordings of counters, or their folders; default `telemetry` in the folder of the plan.
    monitor
        A recording of `monitor`, which tells of lost GPUs and free memory.
    observations
        A file of observations from elsewhere (docs/replan.md).
    replan_policy
        The file with the loop's thresholds; the defaults hold without one.
    state
        The record: a SQLite file or a PostgreSQL URL; default `replan.db` in the folder of the plan.
    dry_run
        Decide and record, but write no plan.
    wait_s
        Seconds to wait for another run that holds the folder.
    cache_mib
        MiB of configurations to keep in the cache folder between runs; 0 keeps none.
    notes
        Called with each line that the user should read; the default logs it.

    Returns
    -------
    Replanned
        The decision with its reason, and what became of it.

    Raises
    ------
    StateError
        If there is no plan in the folder, or the record is damaged.
    LockedError
        If another run holds the folder, or another planner leads.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> lp.replan("profiles", gpus=8, run="run/").decision.rule
    'telemetry'
    """
    flags = ClusterFlags(gpus, gpus_per_node, gpu_class, cluster, local)
    settings = PriceSettings(flags, policy, None, allow_prior, ahead_steps, seed)
    sources = sources_of(source, run, settings, telemetry, monitor, observations)
    thresholds = read_policy(replan_policy)
    require_folder(sources.run)
    with (
        kept_configurations(cache_mib, notes) as configurations,
        locked(sources.run, wait_s),
        open_record(sources.run, state, lead=True) as store,
    ):
        cache = ValueCache(configurations=configurations)
        return look_at(sources, store, thresholds, dry_run=dry_run, cache=cache, notes=notes)


def sources_of(
    source: str | Path,
    run: str | Path,
    settings: PriceSettings,
    telemetry: Sequence[str | Path] | None,
    monitor: str | Path | None,
    observations: str | Path | None,
) -> Sources:
    """Return the sources that a caller named."""
    folder = Path(run)
    return Sources(
        source,
        folder,
        settings,
        (folder / "telemetry",) if not telemetry else tuple(map(Path, telemetry)),
        None if monitor is None else Path(monitor),
        None if observations is None else Path(observations),
    )


@contextmanager
def locked(folder: Path, wait_s: float) -> Iterator[None]:
    """Hold the folder's lock for a look; the kernel gives it back however the run ends (A077)."""
    ends = time.monotonic() + wait_s
    while True:
        try:
            with lock_folder(folder, LOCK):
                yield
                return
        except LockedError:
            if time.monotonic() >= ends:
                raise
            time.sleep(_POLL_S)


def look_at(
    sources: Sources,
    store: StateStore,
    policy: ReplanPolicy,
    *,
    dry_run: bool,
    cache: ValueCache,
    notes: Notes,
) -> Replanned:
    """Look once at what the sources tell; the caller holds the folder's lock."""
    store.lead(3.0 * policy.every_s)

    def facts(
        parent: Manifest, requests: tuple[TaskRequest, ...], state: LoopState
    ) -> tuple[LoopInputs, WorkloadFile]:
        return read_facts(sources, parent, requests, state, policy, notes)

    with writing(sources.run):
        return look(sources.run, store, facts, dry_run=dry_run, cache=cache, notes=notes)


def look(
    folder: Path,
    store: StateStore,
    facts: Facts,
    *,
    dry_run: bool = False,
    cache: ValueCache | None = None,
    notes: Notes = log_note,
) -> Replanned:
    """Look once. The caller holds the folder's lock, or the lease of a shared database."""
    recover(folder, store, notes)
    stored = read_current(folder)
    parent = stored.manifest
    if parent is None:
        raise ManifestError(
            "there is no plan to look after",
            got=folder / CURRENT,
            way_out=f"make one first: libra-plan solve profiles/ --out {folder}",
        )
    for line in stored.notes:
        notes(line)
    state = store.state()
    inputs, workload = facts(parent, job_queue.read_requests(store), state)
    found = reconcile(inputs, state, cache)
    manifest = _manifest(found, parent, workload)
    changes = manifest is not None or bool(found.decision.batch_steps)
    outcome = "kept" if not changes else "dry-run" if dry_run else "pending"
    wanted = None if manifest is None else (manifest.metadata.digest, manifest_to_json(manifest).encode())
    number = store.record(inputs, state, found, outcome, parent=parent.metadata.digest, manifest=wanted)
    generation = parent.metadata.generation
    if outcome == "pending":
        if manifest is None:
            keep_steps(folder, found.decision.batch_steps)
        else:
            write_manifest(folder, manifest)
            generation = manifest.metadata.generation
        outcome = "applied"
        store.settle(number, outcome)
    store.note_outcomes(number, _observed_s(inputs))
    job_queue.forget_removed(store, (held.task for held in found.problem.running))
    if number % _FORGET_EVERY == 0:
        gone = store.forget(inputs.policy.retention, inputs.now.wall_s)
        if gone:
            notes(f"{gone} looks are past their retention and were dropped")
    return Replanned(number, found.decision, outcome, generation, found.problem.horizon_s)


def recover(folder: Path, store: StateStore, notes: Notes = log_note) -> None:
    """Finish what a killed run decided: write its manifest if the old one is still there."""
    for row in store.pending():
        current = read_current(folder).manifest
        there = None if current is None else current.metadata.digest
        outcome, said = "applied", "was decided and is now applied"
        if row.manifest is None:
            keep_steps(folder, store.decision(row.id).batch_steps)
        elif there == row.manifest:
            said = "had been applied"
        elif there == row.parent:
            write_manifest(folder, msgspec.json.decode(store.manifest(row.manifest), type=Manifest))
        else:
            outcome, said = "superseded", "was not applied: another plan has come in between"
        store.settle(row.id, outcome)
        notes(f"look {row.id} {said}")


def _manifest(found: Reconciled, parent: Manifest, workload: WorkloadFile | None) -> Manifest | None:
    plan = found.decision.plan
    if plan is None:
        return None
    made = build_manifest(found.problem, plan, name=parent.metadata.name, parent=parent, workload=workload)
    if says_the_same(made, parent):
        raise StateError(
            "a change was decided that changes nothing, a defect of ours", got=found.decision.why
        )
    return made


def _observed_s(inputs: LoopInputs) -> dict[tuple[str, str], float]:
    """Return the observed stage seconds of roles as they run, where the form they run in is priced."""
    problem, window = inputs.today or inputs.problem, inputs.window
    observed = {
        (each.task, each.role): each.seconds for each in (window.seen if window else ()) if each.form is None
    }
    running = {(held.task, role) for held in problem.running for role in running_options(problem, held)}
    return {key: seconds for key, seconds in observed.items() if key in running}


# ---------------------------------------------------------------- the queue


@dataclass(frozen=True)
class TaskQueue:
    """What users asked of tasks, and how long queued tasks have waited, seconds."""

    asked: tuple[TaskRequest, ...]
    waits_s: dict[str, float]


def add_tasks(run: str | Path, file: str | Path, *, reason: str = "", state: str | None = None) -> list[str]:
    """Add the tasks of a workload file to the queue of a run; the next look acts on it.

    Parameters
    ----------
    run
        The folder of the running plan.
    file
        A file like `workload.yaml` with the tasks to add: all of them are, or none.
    reason
        Why, for the record.
    state
        The record, as in `replan`.

    Returns
    -------
    list of str
        The names of the tasks that were added.

    Raises
    ------
    InputError
        When the file is wrong, or the plan has such a task already.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> lp.add_tasks("run/", lp.load("profiles").path / "workload.yaml")
    Traceback (most recent call last):
    ...
    libra_plan.errors.InputError: there is such a task already; got agent-7b; ...
    """
    workload, folder = load_workload(Path(file))[0], Path(run)
    require_folder(folder)
    with open_record(folder, state) as store:
        job_queue.add_tasks(store, folder, workload.tasks, read_clocks().wall_s, reason)
    return [task.id for task in workload.tasks]


def change_task(
    run: str | Path,
    task: str,
    change: str,
    *,
    weight: float | None = None,
    tier: int | None = None,
    reason: str = "",
    state: str | None = None,
) -> None:
    """Ask for a change of one task; the next look acts on it.

    Parameters
    ----------
    run
        The folder of the running plan.
    task
        The name of the task.
    change
        `remove`, `pause`, `resume`, or `priority` with a `weight`, a `tier` or both.
    weight, tier
        What the task counts in the objective, and its tier under the policy `priority`.
    reason
        Why, for the record.
    state
        The record, as in `replan`.

    Raises
    ------
    InputError
        When there is no such task, or nothing to set.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> lp.change_task("run/", "eval-7b", "pause", reason="maintenance")
    """
    if change == "priority" and weight is None and tier is None:
        raise InputError("nothing to set", allowed="--weight, --tier or both")
    folder = Path(run)
    require_folder(folder)
    with open_record(folder, state) as store:
        now_s = read_clocks().wall_s
        job_queue.change_task(store, folder, task, change, now_s, reason=reason, weight=weight, tier=tier)


def list_tasks(run: str | Path, *, state: str | None = None) -> TaskQueue:
    """List what users asked of the tasks of a run, and how long queued tasks have waited.

    Parameters
    ----------
    run
        The folder of the running plan.
    state
        The record, as in `replan`.

    Returns
    -------
    TaskQueue
        The requests by task, and the waits in seconds.

    Raises
    ------
    StateError
        When nothing was recorded yet, or the record is damaged.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> lp.change_task("run/", "eval-7b", "priority", weight=4.0)
    >>> [(request.id, request.weight) for request in lp.list_tasks("run/").asked]
    [('eval-7b', 4.0)]
    """
    with open_record(Path(run), state, create=False) as store:
        return TaskQueue(job_queue.read_requests(store), job_queue.waits_of(store.state()))
