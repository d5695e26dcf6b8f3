"""Say on the record which role is about to be started, and start the process that will become it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from libra_plan.planner.launchers.agents import Agent
from libra_plan.planner.runtime import host, processes
from libra_plan.planner.runtime.goal import Goal
from libra_plan.planner.runtime.processes import Held
from libra_plan.planner.runtime.records import Intent
from libra_plan.planner.runtime.state import State

__all__ = ["hold_role", "intent_of"]


def intent_of(agent: Agent, goal: Goal, folder: Path, number: int) -> Intent:
    """Describe a start before it happens; `number` counts the starts of the run in `folder`."""
    generation = goal.generations[agent.task]
    return Intent(
        start=number,
        task=agent.task,
        role=agent.role,
        generation=generation,
        gpus=tuple(f"{agent.node}:{gpu}" for gpu in agent.gpus),
        trains=(agent.task, agent.role) in goal.trains,
        world_size=agent.world_size,
        lifecycle=goal.lifecycles[agent.task],
        log=str(folder / "logs" / agent.task / agent.role / f"g{generation:06d}.log"),
        progress=str(folder / "progress" / f"{number:06d}.jsonl"),
    )


def hold_role(agent: Agent, intent: Intent, state: State, inherited: Mapping[str, str]) -> Held:
    """Start the process that waits to become the role; an OSError or a ValueError when there is none."""
    progress = Path(intent.progress)
    progress.parent.mkdir(parents=True, exist_ok=True)
    environment = host.role_environment(agent, inherited) | {
        host.MARK: state.launch_id,
        processes.START_MARK: str(intent.start),
        "LIBRA_PLAN_PROGRESS_FILE": str(progress),
        "LIBRA_PLAN_TASK": agent.task,
    }
    return processes.start_held(agent.argv, environment, Path(intent.log), state.working_folder)
