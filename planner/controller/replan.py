"""One look of the loop: read the sources, decide, record the decision, write the plan.

    recover ─▶ read manifest, state, facts ─▶ reconcile ─▶ record (one transaction) ─▶ manifest ─▶ settled

If the process is killed at any point, the folder holds the old or the new manifest and the record holds the
decision; the next run finishes what was cut off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.errors import LockedError, ManifestError, StateError, writing
from libra_plan.notes import Notes, log_note
from libra_plan.planner.controller import job_queue
from libra_plan.planner.controller.batch_steps import keep_steps
from libra_plan.planner.controller.configuration_values import ValueCache
from libra_plan.planner.controller.estimators import running_options
from libra_plan.planner.controller.facts import Sources, read_facts, sources_of
from libra_plan.planner.controller.hysteresis import LEASE_LOOKS, ReplanPolicy, read_policy
from libra_plan.planner.controller.job_queue import TaskRequest
from libra_plan.planner.controller.reconcile import Reconciled, reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import Decision, LoopState
from libra_plan.planner.controller.store import StateStore, open_record, require_folder
from libra_plan.planner.launchers.build import build_manifest, says_the_same
from libra_plan.planner.launchers.document import manifest_to_json
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.store import CURRENT, lock_folder, read_current, write_manifest
from libra_plan.profiles.schema import WorkloadFile

__all__ = [
    "Replanned",
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
    """The result of a look: its number, its decision, the outcome, and the plan's generation after it.

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
    replan_policy: str | Path | None = None,
    state: str | None = None,
    dry_run: bool = False,
    wait_s: float = 0.0,
    notes: Notes = log_note,
    **asked: Any,
) -> Replanned:
    """Observe once what runs, and write a better plan when a change pays for itself.

    Nothing is started or stopped: `apply` moves what runs to the new manifest.

    Parameters
    ----------
    source
        The profiles folder, as in `price`.
    run
        The folder of the running plan, as `solve` wrote it.
    replan_policy
        The file with the loop's thresholds; the defaults hold without one.
    state
        The record: a SQLite file or a PostgreSQL URL; default `replan.db` in the folder of the plan.
    dry_run
        Decide and record, but write no plan.
    wait_s
        Seconds to wait for another run that holds the folder.
    notes
        Called with each line that the user should read; the default logs it.
    **asked
        As in `price`: `gpus`, `gpus_per_node`, `gpu_class`, `cluster`, `local`, `policy`, `allow_prior`,
        `ahead_steps`, `seed`. Besides, `telemetry`: recordings of counters or their folders (default:
        `telemetry` in the folder of the plan); `monitor`: a recording of `monitor`, which tells of lost
        GPUs and free memory; `observations`: a file of them (docs/replan.md).

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
    sources = sources_of(source, run, **asked)
    policy = read_policy(replan_policy)
    require_folder(sources.run)
    with locked(sources.run, wait_s), open_record(sources.run, state, lead=True) as store:
        return look_at(sources, store, policy, dry_run=dry_run, cache=ValueCache(), notes=notes)


@contextmanager
def locked(folder: Path, wait_s: float) -> Iterator[None]:
    """Hold the folder's lock for a look; the kernel releases it however the run ends (A077)."""
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
    """Read the sources and decide once; the caller holds the folder's lock."""
    store.lead(LEASE_LOOKS * policy.every_s)
    facts = partial(read_facts, sources, policy, notes)
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
    """Decide once; the caller holds the folder's lock, or the lease of a shared database."""
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
