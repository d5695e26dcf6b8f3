"""Emit the DeepSpeed launcher: a hostfile and `--include` with exact GPUs, per role.

It sorts the GPUs of a host, so ranks cannot have them in another order. To other hosts it goes by
pdsh and puts words into a remote shell's text, so only plain ones are let through.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from msgspec import Meta

from libra_plan.planner.launchers.agents import (
    Agent,
    AgentOptions,
    agent_reasons,
    agent_script,
    agents_of,
    kind_of_command,
)
from libra_plan.planner.launchers.base import Ability, Emitter, TaskOptions
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, RoleEntry, TaskEntry
from libra_plan.planner.launchers.shell import HERE_LINE, exports, script, words

__all__ = ["EMITTER"]

_PLAIN = re.compile(r"[A-Za-z0-9_./:,=@%+-]*")


class DeepSpeedOptions(TaskOptions, frozen=True, kw_only=True):
    """`ssh_port`: where DeepSpeed reaches the other nodes of a role."""

    ssh_port: Annotated[int, Meta(ge=1, le=65_535)] = 22


class DeepSpeed(Emitter[DeepSpeedOptions]):
    """The DeepSpeed emitter: its launcher starts the ranks of all nodes from the first one."""

    way_out = "solve with GPUs in ascending order and plain node names"

    def reasons(self, picked: Manifest, whole: Manifest) -> Iterable[str]:
        """List why DeepSpeed cannot start roles as planned."""
        yield from agent_reasons(picked, AgentOptions())
        nodes = {node.id: node for node in picked.spec.nodes}
        for task in picked.spec.tasks:
            yield from _reasons(task, nodes)

    def files(self, picked: Manifest) -> dict[str, str]:
        """Write `TASK/ROLE/hostfile`, `deepspeed_env` and `run.sh`."""
        nodes = {node.id: node for node in picked.spec.nodes}
        by_role: dict[tuple[str, str], list[Agent]] = {}
        for agent in agents_of(picked):
            by_role.setdefault((agent.task, agent.role), []).append(agent)
        files: dict[str, str] = {}
        for task in picked.spec.tasks:
            for role in task.roles:
                agents = by_role.get((task.id, role.id), [])
                stem = f"{task.id}/{role.id}"
                if not role.members:
                    files |= {f"{stem}/{agent.node}.sh": agent_script(agent) for agent in agents}
                    continue
                files[f"{stem}/deepspeed_env"] = _environment(agents)
                if len(role.members) > 1:
                    files[f"{stem}/hostfile"] = _hostfile(role, nodes)
                files[f"{stem}/run.sh"] = self._script(task, role, nodes, agents[0])
        return files

    def _script(self, task: TaskEntry, role: RoleEntry, nodes: Mapping[str, NodeEntry], agent: Agent) -> str:
        several = len(role.members) > 1
        include = "@".join(
            f"{nodes[member.node].address if several else 'localhost'}:{','.join(map(str, member.gpus))}"
            for member in role.members
        )
        first = nodes[role.members[0].node]
        hostfile = ' --hostfile="$here/hostfile"' if several else " --hostfile=/dev/null"
        flags = [f"--include={include}", "--no_local_rank", f"--master_port={role.members[0].port}"]
        if several:
            flags += [f"--master_addr={first.address}", f"--ssh_port={self.options.ssh_port}"]
        kind, command = kind_of_command(role.command)
        flags += {"module": ["--module"], "script": [], "program": ["--no_python"]}[kind]
        inherited = {key: value for key, value in agent.environment.items() if key != "CUDA_VISIBLE_DEVICES"}
        return script(
            (
                f"{task.id}/{role.id}, generation {task.generation}: run on node {first.id}.",
                *agent.notes,
            ),
            (
                HERE_LINE,
                "unset CUDA_VISIBLE_DEVICES",  # DeepSpeed sets it from --include, and heeds it otherwise
                *exports(inherited),
                'export DS_ENV_FILE="$here/deepspeed_env"',
                f"exec deepspeed{hostfile} {words([*flags, *command])}",
            ),
        )


EMITTER = DeepSpeed(
    "deepspeed",
    ("0.19.6",),
    frozenset(
        {Ability.GPU_IDS, Ability.MULTI_NODE, Ability.UNEQUAL_NODES, Ability.SHARED_GPUS, Ability.CPU_ROLES}
    ),
    DeepSpeedOptions(),
)


def _reasons(task: TaskEntry, nodes: Mapping[str, NodeEntry]) -> Iterator[str]:
    for role in task.roles:
        for member in role.members:
            if list(member.gpus) != sorted(member.gpus):
                yield f"{task.id}/{role.id}: DeepSpeed sorts GPUs, and ranks on {member.node} are otherwise"
    for role in task.roles:
        if len(role.members) < 2:
            continue
        where = f"{task.id}/{role.id}"
        values = (*role.command, task.lifecycle.checkpoint_dir or "")
        odd = [word for word in values if not _PLAIN.fullmatch(word)]
        if odd:
            yield f"{where}: DeepSpeed does not quote words for other nodes: {odd[0]!r}"
        for host, times in Counter(nodes[member.node].address for member in role.members).items():
            if host is None:
                yield f"{where}: not every node has an address for DeepSpeed to reach"
            elif times > 1:
                yield f"{where}: {times} nodes have the address {host}, DeepSpeed wants one each"
            elif ":" in host:
                yield f"{where}: DeepSpeed splits at colons, and {host} has some"
    if task.lifecycle.stop_signal == "SIGUSR1":
        yield f"{task.id}: DeepSpeed's launcher does not pass SIGUSR1 on"


def _hostfile(role: RoleEntry, nodes: Mapping[str, NodeEntry]) -> str:
    hosts = [nodes[member.node] for member in role.members]
    return "".join(f"{host.address} slots={max(gpu.index for gpu in host.gpus) + 1}\n" for host in hosts)


def _environment(agents: list[Agent]) -> str:
    """Write what is equal on all nodes, for DeepSpeed to export there; it reads KEY=VALUE lines."""
    return "".join(
        f"{key}={value}\n"
        for key, value in agents[0].environment.items()
        if key != "CUDA_VISIBLE_DEVICES" and all(agent.environment.get(key) == value for agent in agents)
    )
