"""The goal of a hand-over on a node, and the actions allowed next: pure functions of the state.

A task's GPUs count as held until all its processes are proven gone, so growth waits for the shrink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from libra_plan.planner.launchers.agents import Agent
from libra_plan.planner.launchers.manifest import Lifecycle, Manifest, Transition
from libra_plan.planner.launchers.transitions import Holding, transitions_between
from libra_plan.planner.runtime.journal import Intent
from libra_plan.planner.runtime.processes import log_of
from libra_plan.planner.runtime.state import Process, RunState

__all__ = [
    "Act",
    "Action",
    "Goal",
    "WantedRole",
    "next_actions",
    "runs_as_wanted",
    "steps_to",
]


@dataclass(frozen=True)
class WantedRole:
    """A process that a plan wants on this node; `gpus` as `node:index`, in rank order."""

    role: str
    generation: int
    gpus: tuple[str, ...]


Wanted = Mapping[str, tuple[WantedRole, ...]]


@dataclass(frozen=True)
class Goal:
    """What a manifest wants on this node: its agents, and how their tasks are stopped.

    `joint` are the sets of tasks that share GPUs.
    """

    agents: Mapping[tuple[str, str], Agent]
    wanted: Wanted
    generations: Mapping[str, int]
    trains: frozenset[tuple[str, str]]
    lifecycles: Mapping[str, Lifecycle]
    joint: tuple[frozenset[str], ...] = ()

    def partners(self, task: str) -> frozenset[str]:
        """Return the tasks that share GPUs with a task, itself included."""
        return frozenset({task}).union(*(group for group in self.joint if task in group))

    def intent_of(self, agent: Agent, folder: Path, number: int) -> Intent:
        """Describe a start before it happens; `number` counts the starts of the run in `folder`."""
        generation = self.generations[agent.task]
        return Intent(
            start=number,
            task=agent.task,
            role=agent.role,
            generation=generation,
            gpus=tuple(f"{agent.node}:{gpu}" for gpu in agent.gpus),
            trains=(agent.task, agent.role) in self.trains,
            world_size=agent.world_size,
            lifecycle=self.lifecycles[agent.task],
            log=str(log_of(folder, agent, generation)),
            progress=str(folder / "progress" / f"{number:06d}.jsonl"),
        )

    @staticmethod
    def of(manifest: Manifest | None, agents: tuple[Agent, ...], node: str) -> Goal:
        """Return the part of a manifest that belongs to a node; of None, an empty goal."""
        tasks = () if manifest is None else manifest.spec.tasks
        joint = () if manifest is None else manifest.spec.joint or ()
        generations = {task.id: task.generation for task in tasks}
        here = [agent for agent in agents if agent.node == node]
        wanted: dict[str, list[WantedRole]] = {}
        for agent in here:
            gpus = tuple(f"{node}:{gpu}" for gpu in agent.gpus)
            role = WantedRole(agent.role, generations[agent.task], gpus)
            wanted.setdefault(agent.task, []).append(role)
        return Goal(
            {(agent.task, agent.role): agent for agent in here},
            {task: tuple(roles) for task, roles in wanted.items()},
            generations,
            frozenset((task.id, role.id) for task in tasks for role in task.roles if role.trains),
            {task.id: task.lifecycle for task in tasks},
            tuple(frozenset(entry.tasks) for entry in joint),
        )


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
    """An action to take now, for one step."""

    act: Act
    step: Transition


def steps_to(
    state: RunState,
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
    state: RunState, task: str, roles: tuple[WantedRole, ...] | None, kept: bool, joint: bool
) -> Iterator[Holding]:
    processes = state.of(task)
    before = frozenset(gpu for process in processes for gpu in process.gpus) if processes else None
    after = None if roles is None else frozenset(gpu for role in roles for gpu in role.gpus)
    if joint and not kept and None not in (before, after):
        yield Holding(task, before, None)
        yield Holding(task, None, after)
    else:
        yield Holding(task, before, after, kept)


def _is_kept(state: RunState, task: str, roles: tuple[WantedRole, ...], live: Collection[int]) -> bool:
    if state.stop_of(task).stopping or not runs_as_wanted(state.of(task), roles):
        return False
    arrived = any(process.turn >= state.first_turn for process in state.of(task))
    touched = state.open and (arrived or task in state.timeline)
    return not touched or all(process.start in live for process in state.of(task))


def runs_as_wanted(processes: tuple[Process, ...], roles: tuple[WantedRole, ...]) -> bool:
    """Whether these are the processes that a plan wants, one for one."""
    have = sorted((one.role, one.generation, one.gpus) for one in processes)
    return have == sorted((one.role, one.generation, one.gpus) for one in roles)


def next_actions(state: RunState, wanted: Wanted, live: Collection[int]) -> tuple[Action, ...]:
    """List what may be done now; empty when all steps are through, have failed, or wait for failed ones."""
    over = state.through.union(state.failed)
    return tuple(
        Action(_act(state, step, wanted, live), step)
        for step in state.steps
        if step.action != "keep" and step.id not in over and state.through.issuperset(step.after)
    )


def _act(state: RunState, step: Transition, wanted: Wanted, live: Collection[int]) -> Act:
    if state.leaving(step.task):
        marks = state.stop_of(step.task)
        if marks.stopping:
            return Act.AWAIT_GONE
        # Stopping a role that trains, runs, and is past its start would lose steps.
        works = [one for one in state.of(step.task) if one.trains and one.established and one.start in live]
        if marks.saved is not None or not works:
            return Act.STOP
        return Act.ORDER if marks.ordered is None else Act.AWAIT_SAVED
    if step.action == "stop":
        return Act.PASS
    as_wanted = runs_as_wanted(state.arriving(step.task), wanted[step.task])
    return Act.AWAIT_READY if as_wanted else Act.START
