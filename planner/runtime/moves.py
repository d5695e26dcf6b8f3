"""What may be done now: a pure function from what is known to the next actions.

A task's GPUs count as held until all its processes are proven gone, so growth waits for the shrink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from libra_plan.planner.launchers.manifest import Transition
from libra_plan.planner.launchers.transitions import Holding, transitions_between
from libra_plan.planner.runtime.state import Process, State

__all__ = ["Act", "Action", "WantedRole", "next_actions", "runs_as_wanted", "steps_to"]


@dataclass(frozen=True)
class WantedRole:
    """A process that a plan wants on this node; `gpus` as `node:index`, in rank order."""

    role: str
    generation: int
    gpus: tuple[str, ...]


Wanted = Mapping[str, tuple[WantedRole, ...]]


class Act(str, Enum):
    """What can be done about a task, in the order in which it is done."""

    ORDER = "ask for a checkpoint"
    AWAIT_SAVED = "wait for the checkpoint"
    STOP = "stop"
    AWAIT_GONE = "wait until its processes and their GPU memory are gone"
    START = "start"
    AWAIT_READY = "wait until it works"
    PASS = "note that the step is through"


@dataclass(frozen=True)
class Action:
    """Something to do now, for one step."""

    act: Act
    step: Transition


def steps_to(
    state: State,
    wanted: Wanted,
    live: Collection[int],
    joint: Collection[frozenset[str]] = (),
) -> tuple[Transition, ...]:
    """List the steps from what is now to what is wanted, in the order of the manifest's transitions.

    `live` holds the numbers of the starts whose process runs. A task that this hand-over has not
    touched and that runs under the wanted generation is kept, even where a role of it has ended by
    itself. Tasks that run `joint`, before or after, start anew together: all stop before any starts.
    """
    tasks = dict.fromkeys((*(process.task for process in state.processes), *wanted))
    kept = {task for task in tasks if _is_kept(state, task, wanted.get(task, ()), live)}
    for group in joint:
        if not kept.issuperset(group & tasks.keys()):
            kept -= group
    together = frozenset[str]().union(*joint)
    return transitions_between(
        holding
        for task in tasks
        for holding in _holdings(state, task, wanted.get(task), task in kept, task in together)
    )


def _holdings(
    state: State, task: str, roles: tuple[WantedRole, ...] | None, kept: bool, joint: bool
) -> Iterator[Holding]:
    processes = state.of(task)
    before = frozenset(gpu for process in processes for gpu in process.gpus) if processes else None
    after = None if roles is None else frozenset(gpu for role in roles for gpu in role.gpus)
    if joint and not kept and None not in (before, after):
        yield Holding(task, before, None)
        yield Holding(task, None, after)
    else:
        yield Holding(task, before, after, kept)


def _is_kept(state: State, task: str, roles: tuple[WantedRole, ...], live: Collection[int]) -> bool:
    if state.stop_of(task).stopping or not runs_as_wanted(state.of(task), roles):
        return False
    arrived = any(process.turn >= state.first_turn for process in state.of(task))
    touched = state.open and (arrived or task in state.timeline)
    return not touched or all(process.start in live for process in state.of(task))


def runs_as_wanted(processes: tuple[Process, ...], roles: tuple[WantedRole, ...]) -> bool:
    """Say whether these are the processes that a plan wants, one for one."""
    have = sorted((one.role, one.generation, one.gpus) for one in processes)
    return have == sorted((one.role, one.generation, one.gpus) for one in roles)


def next_actions(state: State, wanted: Wanted, live: Collection[int]) -> tuple[Action, ...]:
    """List what may be done now; empty when all steps are through, have failed, or wait for failed ones."""
    return tuple(_ready(state, wanted, live))


def _ready(state: State, wanted: Wanted, live: Collection[int]) -> Iterator[Action]:
    for step in state.steps:
        if step.action == "keep" or step.id in state.through or step.id in state.failed:
            continue
        if state.through.issuperset(step.after):
            yield Action(_act(state, step, wanted, live), step)


def _act(state: State, step: Transition, wanted: Wanted, live: Collection[int]) -> Act:
    if state.leaving(step.task):
        return _leave(state, step.task, live)
    if step.action == "stop":
        return Act.PASS
    started = state.arriving(step.task)
    if not runs_as_wanted(started, wanted[step.task]):
        return Act.START
    return Act.AWAIT_READY


def _leave(state: State, task: str, live: Collection[int]) -> Act:
    turn = state.stop_of(task)
    if turn.stopping:
        return Act.AWAIT_GONE
    if turn.saved is not None or not has_to_save(state, task, live):
        return Act.STOP
    return Act.ORDER if turn.ordered is None else Act.AWAIT_SAVED


def has_to_save(state: State, task: str, live: Collection[int]) -> bool:
    """Say whether stopping the task would lose steps: a role trains, runs, and is past its start."""
    return any(one.trains and one.established and one.start in live for one in state.of(task))
