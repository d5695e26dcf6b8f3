"""Emit torchrun: a shell script and an environment file per role and node, and a README."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import msgspec

from libra_plan.planner.launchers.agents import (
    Agent,
    AgentOptions,
    agent_reasons,
    agent_script,
    agents_of,
    role_notes,
)
from libra_plan.planner.launchers.base import Ability, Emitter
from libra_plan.planner.launchers.manifest import Manifest, RoleEntry

__all__ = ["EMITTER"]


class Torchrun(Emitter[AgentOptions]):
    """The torchrun emitter; its options are what the installed version allows."""

    way_out = "solve again"

    def reasons(self, picked: Manifest, whole: Manifest) -> Iterable[str]:
        """List why torchrun cannot start roles."""
        return agent_reasons(picked, self.options)

    def files(self, picked: Manifest) -> dict[str, str]:
        """Write `TASK/ROLE/NODE.sh` and `.env` for every agent, and `README.md`."""
        files = {"README.md": _readme(picked)}
        for agent in agents_of(picked, self.options):
            stem = f"{agent.task}/{agent.role}/{agent.node}"
            files[f"{stem}.sh"] = agent_script(agent, _title(agent))
            # For `set -a; . FILE`: values are quoted for the shell.
            files[f"{stem}.env"] = "".join(
                f"{key}={shlex.quote(value)}\n" for key, value in agent.environment.items()
            )
        return files


EMITTER = Torchrun(
    "torchrun",
    ("2.11.0", "2.12.1", "2.13.0", "2.14.1"),
    frozenset(Ability) - {Ability.TASK_GPUS},
    AgentOptions(),
)


def _title(agent: Agent) -> str:
    what = f"{agent.task}/{agent.role} on {agent.node}"
    if not agent.gpus:
        return f"{what}: {agent.world_size} workers"
    last = agent.first_rank + len(agent.gpus) - 1
    return f"{what}: ranks {agent.first_rank}-{last} of {agent.world_size}"


def _readme(manifest: Manifest) -> str:
    metadata = manifest.metadata
    lines = [
        f"# {metadata.name}, generation {metadata.generation}",
        "",
        f"Manifest `{metadata.digest}`. Run every script on its node; all scripts of a role together.",
        "",
        "| task | role | node | GPUs | ranks | layout | port | shares GPUs |",
        "|---|---|---|---|---|---|---|---|",
        *_rows(manifest),
        "",
        *(f"- {note}" for note in _notes(manifest)),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _rows(manifest: Manifest) -> Iterator[str]:
    for task in manifest.spec.tasks:
        for role in task.roles:
            first = 0
            for member in role.members:
                after = first + len(member.gpus)
                gpus = " ".join(str(index) for index in member.gpus)
                cells = (member.node, gpus, f"{first}-{after - 1}", _layout(role), member.port)
                row = " | ".join(map(str, (task.id, role.id, *cells, role.share_group or "")))
                yield f"| {row} |"
                first = after
            for share in role.cpu:
                yield f"| {task.id} | {role.id} | {share.node} | CPU: {share.workers} workers | | | | |"


def _layout(role: RoleEntry) -> str:
    if role.mix or role.layout is None:
        return "mixed" if role.mix else ""
    degrees = msgspec.structs.asdict(role.layout)
    return " ".join(f"{name}{value}" for name, value in degrees.items() if value > 1) or "dp1"


def _notes(manifest: Manifest) -> Iterator[str]:
    for task in manifest.spec.tasks:
        for role in task.roles:
            where = f"{task.id}/{role.id}"
            yield from (f"{where}: {note}" for note in role_notes(task, role))
            if role.cpu and not role.command:
                yield f"{where}: no command, so no script: its work runs inside another role's processes."
    for waiting in manifest.spec.queued:
        yield f"{waiting.task} waits ({waiting.code}): {waiting.reason}"
