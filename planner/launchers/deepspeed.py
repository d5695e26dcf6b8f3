"""Emit the DeepSpeed launcher: a hostfile and `--include` with exact GPUs, per role.

It sorts the GPUs of a host, so ranks cannot have them in another order. To other hosts it goes by
pdsh and puts words into a remote shell's text, so only plain ones are let through.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from libra_plan.planner.launchers.agents import Agent, AgentOptions, agent_reasons, agents_of
from libra_plan.planner.launchers.base import Ability, Options, missing_abilities, refusal
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, RoleEntry, TaskEntry
from libra_plan.planner.launchers.ray_cluster import chosen
from libra_plan.planner.launchers.shapes import task_nodes
from libra_plan.planner.launchers.shell import exports, script, words

__all__ = ["EMITTER", "DeepSpeed", "DeepSpeedOptions"]

_PLAIN = re.compile(r"[A-Za-z0-9_./:,=@%+-]*")
_PYTHONS = frozenset({"python", "python3"})


class DeepSpeedOptions(Options, frozen=True, kw_only=True):
    """`tasks`: only these; `ssh_port`: where DeepSpeed reaches the other nodes of a role."""

    tasks: str = ""
    ssh_port: Annotated[int, Meta(ge=1, le=65_535)] = 22


@dataclass(frozen=True)
class DeepSpeed:
    """The DeepSpeed emitter: its launcher starts the ranks of all nodes from the first one."""

    options: DeepSpeedOptions = field(default_factory=DeepSpeedOptions)
    name: str = "deepspeed"
    abilities: frozenset[Ability] = frozenset(
        {Ability.GPU_IDS, Ability.MULTI_NODE, Ability.UNEQUAL_NODES, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    )
    versions: tuple[str, ...] = ("0.19.6",)

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Write `TASK/ROLE/hostfile`, `deepspeed_env` and `run.sh`."""
        picked = chosen(manifest, self.options.tasks)
        reasons = missing_abilities(self, picked)
        reasons += agent_reasons(picked, AgentOptions())
        reasons += [reason for task in picked.spec.tasks for reason in _reasons(picked, task)]
        if reasons:
            raise refusal(self.name, reasons, "solve with GPUs in ascending order and plain node names")
        files: dict[str, str] = {}
        agents = agents_of(picked)
        for task in picked.spec.tasks:
            for role in task.roles:
                mine = [agent for agent in agents if (agent.task, agent.role) == (task.id, role.id)]
                files |= _files(picked, task, role, mine, self.options)
        return files


EMITTER = DeepSpeed()


def _reasons(manifest: Manifest, task: TaskEntry) -> Iterator[str]:
    several = [role for role in task.roles if len(role.members) > 1]
    nodes = {node.id: node for node in task_nodes(manifest, task)}
    for role in task.roles:
        for member in role.members:
            if list(member.gpus) != sorted(member.gpus):
                yield f"{task.id}/{role.id}: DeepSpeed sorts GPUs, and ranks on {member.node} are otherwise"
    for role in several:
        values = (*role.command, task.lifecycle.checkpoint_dir or "")
        odd = [word for word in values if not _PLAIN.fullmatch(word)]
        if odd:
            yield f"{task.id}/{role.id}: DeepSpeed does not quote words for other nodes: {odd[0]!r}"
        hosts = Counter(nodes[member.node].address for member in role.members)
        for host, times in hosts.items():
            if host is None:
                yield f"{task.id}/{role.id}: not every node has an address for DeepSpeed to reach"
            elif times > 1:
                yield f"{task.id}/{role.id}: {times} nodes have the address {host}, DeepSpeed wants one each"
            elif ":" in host:
                yield f"{task.id}/{role.id}: DeepSpeed splits at colons, and {host} has some"
    if task.lifecycle.stop_signal == "SIGUSR1":
        yield f"{task.id}: DeepSpeed's launcher does not pass SIGUSR1 on"


def _files(
    manifest: Manifest, task: TaskEntry, role: RoleEntry, agents: list[Agent], options: DeepSpeedOptions
) -> dict[str, str]:
    stem = f"{task.id}/{role.id}"
    if not role.members:
        return {f"{stem}/{agent.node}.sh": _cpu_script(agent) for agent in agents}
    nodes = {node.id: node for node in manifest.spec.nodes}
    files = {f"{stem}/deepspeed_env": _environment(agents)}
    if len(role.members) > 1:
        files[f"{stem}/hostfile"] = "".join(
            f"{nodes[member.node].address} slots={_slots(nodes[member.node])}\n" for member in role.members
        )
    files[f"{stem}/run.sh"] = _script(task, role, nodes, agents[0], options)
    return files


def _slots(node: NodeEntry) -> int:
    return max(gpu.index for gpu in node.gpus) + 1


def _environment(agents: list[Agent]) -> str:
    """Write what is equal on all nodes, for DeepSpeed to export there; it reads KEY=VALUE lines."""
    first = agents[0].environment
    shared = {
        key: value
        for key, value in first.items()
        if key != "CUDA_VISIBLE_DEVICES" and all(agent.environment.get(key) == value for agent in agents)
    }
    return "".join(f"{key}={value}\n" for key, value in shared.items())


def _cpu_script(agent: Agent) -> str:
    return script(agent.notes, (*exports(agent.environment), "exec " + words(agent.argv)))


def _script(
    task: TaskEntry, role: RoleEntry, nodes: dict[str, NodeEntry], agent: Agent, options: DeepSpeedOptions
) -> str:
    several = len(role.members) > 1
    include = "@".join(
        f"{nodes[member.node].address if several else 'localhost'}:{','.join(map(str, member.gpus))}"
        for member in role.members
    )
    first = nodes[role.members[0].node]
    argv = ["deepspeed", f"--include={include}"]
    argv += ["--no_local_rank", f"--master_port={role.members[0].port}"]
    argv += [f"--master_addr={first.address}", f"--ssh_port={options.ssh_port}"] if several else []
    hostfile = ' --hostfile="$here/hostfile"' if several else " --hostfile=/dev/null"
    return script(
        (
            f"{task.id}/{role.id}, generation {task.generation}: run on node {first.id}.",
            *agent.notes,
        ),
        (
            'here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)',
            "unset CUDA_VISIBLE_DEVICES",  # DeepSpeed sets it from --include, and heeds it otherwise
            *exports({key: value for key, value in agent.environment.items() if "CUDA_VIS" not in key}),
            'export DS_ENV_FILE="$here/deepspeed_env"',
            f"exec {words(argv[:1])}{hostfile} {words([*argv[1:], *_command(role.command)])}",
        ),
    )


def _command(command: tuple[str, ...]) -> tuple[str, ...]:
    """Say to DeepSpeed what a command is: a script, a module, or a program of its own."""
    if command[0] in _PYTHONS and len(command) > 1 and (command[1] == "-m" or command[1].endswith(".py")):
        command = command[1:]
    if command[0] == "-m":
        return ("--module", *command[1:])
    return command if command[0].endswith(".py") else ("--no_python", *command)
