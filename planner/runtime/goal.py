"""What a hand-over leads to on one node, and how long each of its waits may last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from libra_plan.planner.launchers.agents import Agent
from libra_plan.planner.launchers.manifest import Lifecycle, Manifest
from libra_plan.planner.runtime.moves import Wanted, WantedRole

__all__ = ["Deadlines", "Goal", "trains"]


@dataclass(frozen=True)
class Deadlines:
    """How long each wait may last, seconds.

    `checkpoint_s` (None: the task's grace) from the order to a complete checkpoint; `memory_s` for
    the memory of GPUs whose processes are gone; a role that reports nothing counts as working after
    `window_s`, one that reports must be warm within `ready_s`.
    """

    checkpoint_s: float | None = None
    memory_s: float = 60.0
    window_s: float = 30.0
    ready_s: float = 1800.0


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
        """Give the tasks that share GPUs with a task, itself included."""
        return frozenset({task}).union(*(group for group in self.joint if task in group))

    @staticmethod
    def of(manifest: Manifest | None, agents: tuple[Agent, ...], node: str) -> Goal:
        """Take from a manifest what belongs to a node; None wants nothing."""
        tasks = {} if manifest is None else {task.id: task for task in manifest.spec.tasks}
        here = [agent for agent in agents if agent.node == node]
        wanted = {
            task: tuple(
                WantedRole(agent.role, tasks[task].generation, tuple(f"{node}:{gpu}" for gpu in agent.gpus))
                for agent in here
                if agent.task == task
            )
            for task in dict.fromkeys(agent.task for agent in here)
        }
        training = frozenset(
            (task.id, role.id) for task in tasks.values() for role in task.roles if trains(role.kind)
        )
        return Goal(
            {(agent.task, agent.role): agent for agent in here},
            wanted,
            {task.id: task.generation for task in tasks.values()},
            training,
            {task.id: task.lifecycle for task in tasks.values()},
            () if manifest is None else tuple(frozenset(entry.tasks) for entry in manifest.spec.joint or ()),
        )


def trains(kind: str) -> bool:
    """Say whether a role of this kind holds state that only a checkpoint keeps."""
    return kind.endswith("_train")
