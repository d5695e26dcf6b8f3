"""One look with everything around it: what is read before, recorded, and written after.

    recover ─▶ read manifest, state, world ─▶ look ─▶ record (one transaction) ─▶ manifest ─▶ settled

Killed anywhere, the folder holds the old manifest or the new one, and the record what was decided; the
next run finishes what was cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from libra_plan.errors import ManifestError, StateError
from libra_plan.planner.controller.batch_steps import keep_steps
from libra_plan.planner.controller.configuration_values import Memo
from libra_plan.planner.controller.decision import Decision
from libra_plan.planner.controller.estimators import option_of
from libra_plan.planner.controller.job_queue import TaskBook, forget_removed, read_book
from libra_plan.planner.controller.outcomes import Realised, note_outcomes
from libra_plan.planner.controller.policy import ReplanPolicy
from libra_plan.planner.controller.reconcile import Looked, look
from libra_plan.planner.controller.snapshot import LookInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.state_store import StateStore
from libra_plan.planner.launchers.build import build_manifest, says_the_same
from libra_plan.planner.launchers.document import manifest_to_json
from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.store import CURRENT, read_current, write_manifest
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import Moment, Observations, ObservedTime
from libra_plan.profiles.schema import WorkloadFile

__all__ = ["Report", "World", "one_look", "recover"]

_FORGET_EVERY = 100


@dataclass(frozen=True)
class World:
    """What the caller has read: the priced problem, observations, and the workload with its commands.

    `today`: the problem at today's lengths, where `problem` is priced for later.
    """

    problem: Problem
    window: Observations | None
    workload: WorkloadFile | None = None
    paused: frozenset[str] = frozenset()
    rigid: frozenset[str] = frozenset()
    today: Problem | None = None


Sense = Callable[[Manifest, TaskBook, LoopState], World]
"""Reads the world, given the manifest that runs, what users said, and the state (for waits)."""


@dataclass(frozen=True)
class Report:
    """What a run did: the look's number, its decision, what became of it, and what had to be said."""

    number: int
    decision: Decision
    outcome: str
    generation: int
    horizon_s: float
    notes: tuple[str, ...] = ()


def recover(folder: Path, store: StateStore) -> tuple[str, ...]:
    """Finish what a killed run decided: write its manifest if the old one is still there."""
    notes = []
    for row in store.pending():
        if row.manifest is None:
            keep_steps(folder, store.decision(row.id).batch_steps)
            store.settle(row.id, "applied")
            notes.append(f"look {row.id} was decided and is now applied")
            continue
        current = read_current(folder).manifest
        there = None if current is None else current.metadata.digest
        if there == row.manifest:
            store.settle(row.id, "applied")
            notes.append(f"look {row.id} had been applied")
        elif there == row.parent:
            manifest = msgspec.json.decode(store.manifest(row.manifest), type=Manifest)
            write_manifest(folder, manifest)
            store.settle(row.id, "applied")
            notes.append(f"look {row.id} was decided and is now applied")
        else:
            store.settle(row.id, "superseded")
            notes.append(f"look {row.id} was not applied: another plan has come in between")
    return tuple(notes)


def one_look(
    folder: Path,
    store: StateStore,
    sense: Sense,
    policy: ReplanPolicy,
    now: Callable[[], Moment],
    *,
    dry_run: bool = False,
    memo: Memo | None = None,
) -> Report:
    """Look once. The caller holds the folder's lock, or the lease of a shared database."""
    notes = list(recover(folder, store))
    parent, said = _parent(folder)
    notes += said
    state, book = store.state(), read_book(store)
    world = sense(parent, book, state)
    inputs = LookInputs(world.problem, policy, now(), world.window, world.paused, world.rigid, world.today)
    looked = look(inputs, state, memo)
    manifest = _manifest(looked, parent, world.workload)
    outcome = "kept" if looked.decision.plan is None and not looked.decision.batch_steps else "applied"
    if dry_run and outcome == "applied":
        outcome = "dry-run"
    pending = outcome == "applied"
    number = store.record(
        inputs,
        state,
        looked,
        "pending" if pending else outcome,
        parent=parent.metadata.digest,
        manifest=None
        if manifest is None
        else (manifest.metadata.digest, manifest_to_json(manifest).encode()),
    )
    generation = parent.metadata.generation
    if pending and manifest is not None:
        write_manifest(folder, manifest)
        generation = manifest.metadata.generation
    elif pending:
        keep_steps(folder, looked.decision.batch_steps)
    if pending:
        store.settle(number, "applied")
    note_outcomes(store, number, _realised(world.today or world.problem, world.window))
    forget_removed(store, (held.task for held in looked.problem.running))
    if number % _FORGET_EVERY == 0:
        gone = store.forget(policy.retention, inputs.now.wall_s)
        notes += [f"{gone} looks are past their retention and were dropped"] if gone else []
    return Report(number, looked.decision, outcome, generation, looked.problem.horizon_s, tuple(notes))


def _parent(folder: Path) -> tuple[Manifest, tuple[str, ...]]:
    """Read the manifest that runs, and what had to be said on reading it."""
    stored = read_current(folder)
    if stored.manifest is None:
        raise ManifestError(
            "there is no plan to look after",
            got=folder / CURRENT,
            way_out=f"make one first: libra-plan solve profiles/ --out {folder}",
        )
    return stored.manifest, stored.notes


def _manifest(looked: Looked, parent: Manifest, workload: WorkloadFile | None) -> Manifest | None:
    plan = looked.decision.plan
    if plan is None:
        return None
    made = build_manifest(looked.problem, plan, name=parent.metadata.name, parent=parent, workload=workload)
    if says_the_same(made, parent):
        raise StateError(
            "a change was decided that changes nothing, a defect of ours", got=looked.decision.why
        )
    return made


def _realised(problem: Problem, window: Observations | None) -> tuple[Realised, ...]:
    """Compare what runs with what was predicted: stage seconds of roles that were seen as they run."""
    if window is None:
        return ()
    seen = {(each.task, each.role): each for each in window.seen if each.form is None}
    found = []
    for held in problem.running:
        task = problem.task_of.get(held.task)
        roles = {} if task is None else {role.id: role for role in task.gpu_roles}
        for each in held.roles:
            one: ObservedTime | None = seen.get((held.task, each.role))
            option = option_of(roles[each.role], each, None) if each.role in roles else None
            if one is not None and option is not None:
                found.append(Realised(held.task, each.role, option.time_s.value, one.seconds))
    return tuple(found)
