"""Emit torchrun: a shell script and an environment file per role and node, and a README."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from libra_plan.planner.launchers.agents import Agent, AgentOptions, agents_of, role_notes
from libra_plan.planner.launchers.base import Ability, check_abilities
from libra_plan.planner.launchers.manifest import Manifest, RoleEntry

__all__ = ["EMITTER", "Torchrun"]


@dataclass(frozen=True)
class Torchrun:
    """The torchrun emitter; `options` say what the installed version allows."""

    options: AgentOptions = field(default_factory=AgentOptions)
    name: str = "torchrun"
    abilities: frozenset[Ability] = frozenset(Ability) - {Ability.TASK_GPUS, Ability.JOINT_ENGINE}
    versions: tuple[str, ...] = ("2.11.0", "2.12.1", "2.13.0", "2.14.1")

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/ROLE/NODE.sh` and `.env` for every agent, and `README.md`."""
        check_abilities(self, manifest)
        agents = agents_of(manifest, self.options)
        files = {"README.md": _readme(manifest)}
        for agent in agents:
            stem = f"{agent.task}/{agent.role}/{agent.node}"
            files[f"{stem}.sh"] = _script(agent)
            files[f"{stem}.env"] = _environment(agent)
        return files


EMITTER = Torchrun()


def _environment(agent: Agent) -> str:
    """Write `KEY=VALUE` lines for `set -a; . FILE`; values are quoted for the shell."""
    return "".join(f"{key}={shlex.quote(value)}\n" for key, value in agent.environment.items())


def _script(agent: Agent) -> str:
    lines = ["#!/bin/sh", f"# {_title(agent)}"]
    lines += [f"# {note}" for note in agent.notes]
    lines += ["set -eu"]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in agent.environment.items()]
    lines += [f"unset {key}" for key in agent.unset]
    lines += ["exec " + " ".join(shlex.quote(word) for word in agent.argv)]
    return "\n".join(lines) + "\n"


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
                ranks = f"{first}-{first + len(member.gpus) - 1}"
                gpus = " ".join(str(index) for index in member.gpus)
                cells = (
                    role.id,
                    member.node,
                    gpus,
                    ranks,
                    _layout(role),
                    member.port,
                    role.share_group or "",
                )
                yield f"| {task.id} | " + " | ".join(str(cell) for cell in cells) + " |"
                first += len(member.gpus)
            for share in role.cpu:
                yield f"| {task.id} | {role.id} | {share.node} | CPU: {share.workers} workers | | | | |"


def _layout(role: RoleEntry) -> str:
    if role.mix:
        return "mixed"
    if role.layout is None:
        return ""
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
