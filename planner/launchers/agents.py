"""List what torchrun must start: one agent per role and node, as environment and argument list."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

import msgspec

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import NO_ADDRESS, NO_COMMAND, Options, refusal
from libra_plan.planner.launchers.manifest import Lifecycle, Manifest, Member, NodeEntry, RoleEntry, TaskEntry
from libra_plan.planner.launchers.shell import bracketed, exports, script, words

__all__ = [
    "Agent",
    "AgentOptions",
    "agent_reasons",
    "agent_script",
    "agents_of",
    "kind_of_command",
    "role_notes",
]

_TORCHRUN_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")  # what torchrun handles unless told more
_PYTHONS = frozenset({"python", "python3"})


class AgentOptions(Options, frozen=True, kw_only=True):
    """How agents are started: the torchrun program, and what the installed version allows.

    `shutdown_timeout` adds `--shutdown-timeout`, which torchrun has from 2.12 on; without it the
    grace goes by environment, which older versions ignore (their fixed grace is 30 s).
    `addresses` says by `task/role` where its ranks meet, where that is not the node's address.
    """

    program: tuple[str, ...] = ("torchrun",)
    shutdown_timeout: bool = False
    rendezvous_timeout_s: int = 300
    addresses: dict[str, str] = {}  # noqa: RUF012  # msgspec copies it


@dataclass(frozen=True)
class Agent:
    """One process to start on one node: what it inherits, less `unset`, plus `environment`."""

    task: str
    role: str
    node: str
    gpus: tuple[int, ...]
    first_rank: int
    world_size: int
    port: int | None
    argv: tuple[str, ...]
    environment: dict[str, str] = field(hash=False)
    unset: tuple[str, ...]
    notes: tuple[str, ...]


def agent_script(agent: Agent, title: str | None = None) -> str:
    """Write a shell script that becomes the agent."""
    body = (
        *exports(agent.environment),
        *(f"unset {key}" for key in agent.unset),
        "exec " + words(agent.argv),
    )
    return script((*([title] if title else []), *agent.notes), body)


def agents_of(manifest: Manifest, options: AgentOptions | None = None) -> tuple[Agent, ...]:
    """List the agents of a manifest in task, role and node-rank order.

    A GPU role without a command, or on several nodes without addresses, is refused; a CPU-only
    role without a command has no agent, because its work runs inside another role's processes.
    """
    options = options or AgentOptions()
    reasons = list(agent_reasons(manifest, options))
    if reasons:
        raise refusal("torchrun", reasons, "solve again")
    nodes = {node.id: node for node in manifest.spec.nodes}
    return tuple(
        agent
        for task in manifest.spec.tasks
        for role in task.roles
        for agent in _agents(manifest, task, role, nodes, options)
    )


def agent_reasons(manifest: Manifest, options: AgentOptions) -> Iterator[str]:
    """List why torchrun cannot start roles."""
    addresses = {node.id: node.address for node in manifest.spec.nodes}
    for task in manifest.spec.tasks:
        for role in task.roles:
            where = f"{task.id}/{role.id}"
            if role.members and not role.command:
                yield f"{where}: {NO_COMMAND}"
            if len(role.members) > 1 and where not in options.addresses:
                node = role.members[0].node
                if addresses[node] is None:
                    yield f"{where}: node {node} {NO_ADDRESS}, and its ranks meet there"


def _agents(
    manifest: Manifest,
    task: TaskEntry,
    role: RoleEntry,
    nodes: dict[str, NodeEntry],
    options: AgentOptions,
) -> Iterator[Agent]:
    if not role.members:
        yield from _cpu_agents(manifest, task, role)
        return
    firsts = accumulate((len(member.gpus) for member in role.members), initial=0)
    for rank, (member, first_rank) in enumerate(zip(role.members, firsts, strict=False)):
        yield Agent(
            task=task.id,
            role=role.id,
            node=member.node,
            gpus=member.gpus,
            first_rank=first_rank,
            world_size=len(role.ranks),
            port=role.rendezvous.port if role.rendezvous is not None and rank == 0 else None,
            argv=_argv(task, role, rank, nodes, options),
            environment=_environment(manifest, task, role, member, nodes[member.node]),
            unset=("TORCH_ELASTIC_WORKER_IDENTICAL",) if role.has_unequal_nodes else (),
            notes=tuple(role_notes(task, role)),
        )


def _cpu_agents(manifest: Manifest, task: TaskEntry, role: RoleEntry) -> Iterator[Agent]:
    """Start a CPU-only role once per node; the program starts its workers itself."""
    for share in role.cpu if role.command else ():
        yield Agent(
            task=task.id,
            role=role.id,
            node=share.node,
            gpus=(),
            first_rank=0,
            world_size=share.workers,
            port=None,
            argv=role.command,
            environment={
                "CUDA_VISIBLE_DEVICES": "",
                "LIBRA_PLAN_WORKERS": str(share.workers),
                **_identity(manifest, task, role, share.node),
            },
            unset=(),
            notes=("This role has no GPUs: the program starts LIBRA_PLAN_WORKERS workers itself.",),
        )


def _argv(
    task: TaskEntry, role: RoleEntry, rank: int, nodes: dict[str, NodeEntry], options: AgentOptions
) -> tuple[str, ...]:
    meeting = role.rendezvous
    if meeting is None:
        raise ManifestError(f"{task.id}/{role.id} has ranks but no rendezvous", way_out="solve again")
    flags = {
        "--nnodes": len(role.members),
        "--node-rank": rank,
        "--nproc-per-node": len(role.members[rank].gpus),
        "--rdzv-backend": "static",
        "--master-addr": options.addresses.get(f"{task.id}/{role.id}") or _address(role, nodes[meeting.node]),
        "--master-port": meeting.port,
        "--rdzv-id": meeting.id,
        "--rdzv-conf": f"timeout={options.rendezvous_timeout_s}",
        "--role": role.id,
        "--max-restarts": 0,
        **_stop_flags(task.lifecycle, options),
    }
    told = [word for flag, value in flags.items() for word in (flag, str(value))]
    kind, command = kind_of_command(role.command)
    how = {"module": ("--module", "--"), "script": ("--",), "program": ("--no-python", "--")}[kind]
    return (*options.program, *told, *how, *command)


def _stop_flags(lifecycle: Lifecycle, options: AgentOptions) -> dict[str, object]:
    flags: dict[str, object] = {}
    if lifecycle.stop_signal not in _TORCHRUN_SIGNALS:  # unhandled, it would orphan the workers
        flags["--signals-to-handle"] = ",".join((*_TORCHRUN_SIGNALS, lifecycle.stop_signal))
    if options.shutdown_timeout:
        flags["--shutdown-timeout"] = math.ceil(lifecycle.grace_s)
    return flags


def _address(role: RoleEntry, node: NodeEntry) -> str:
    return "127.0.0.1" if len(role.members) == 1 or node.address is None else bracketed(node.address)


def kind_of_command(
    command: tuple[str, ...],
) -> tuple[Literal["module", "script", "program"], tuple[str, ...]]:
    """Distinguish a module (`-m`), a Python script and another program; the interpreter is left out."""
    if command[0] in _PYTHONS and len(command) > 1 and (command[1] == "-m" or command[1].endswith(".py")):
        command = command[1:]
    if command[0] == "-m":
        return "module", command[1:]
    return ("script" if command[0].endswith(".py") else "program"), command


def _environment(
    manifest: Manifest, task: TaskEntry, role: RoleEntry, member: Member, node: NodeEntry
) -> dict[str, str]:
    gpus = {gpu.index: gpu for gpu in node.gpus}
    known = [uuid for index in member.gpus if (uuid := gpus[index].uuid) is not None]
    degrees = {} if role.layout is None else msgspec.structs.asdict(role.layout)
    joint = manifest.spec.together.get(task.id)
    optional = {
        # Roles that work at once, turn by turn: `a/rollout,b/actor;b/rollout,a/actor`.
        "LIBRA_PLAN_TURNS": ";".join(",".join(turn) for turn in joint.turns) if joint else None,
        "LIBRA_PLAN_SHARE_GROUP": role.share_group,
        "LIBRA_PLAN_MEMORY_MODE": role.memory_mode,
        "LIBRA_PLAN_MIX": _mix(role),
        "LIBRA_PLAN_GPU_UUIDS": ",".join(known) if len(known) == len(member.gpus) else None,
    }
    return {
        # Indices are those of NVML, which counts by PCI bus; CUDA counts fastest first unless told.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpus[index].card) for index in member.gpus),
        "OMP_NUM_THREADS": str(max(1, int(role.cpu_cores_per_gpu))),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(math.ceil(task.lifecycle.grace_s)),
        **_identity(manifest, task, role, member.node),
        **{f"LIBRA_PLAN_{name.upper()}": str(value) for name, value in degrees.items()},
        **{key: value for key, value in optional.items() if value is not None},
    }


def _mix(role: RoleEntry) -> str | None:
    """Write each replica's ranks, layout and range of predicted lengths as JSON; None for equal replicas."""
    if not role.mix:
        return None
    ends = accumulate(len(replica) for replica in role.replicas)
    entries = [
        {"first_rank": end - len(replica), **msgspec.structs.asdict(kind)}
        for end, replica, kind in zip(ends, role.replicas, role.mix, strict=True)
    ]
    return msgspec.json.encode(entries).decode()


def _identity(manifest: Manifest, task: TaskEntry, role: RoleEntry, node: str) -> dict[str, str]:
    identity = {
        "LIBRA_PLAN_TASK": task.id,
        "LIBRA_PLAN_ROLE": role.id,
        "LIBRA_PLAN_NODE": node,
        "LIBRA_PLAN_GENERATION": str(task.generation),
        "LIBRA_PLAN_MANIFEST_DIGEST": manifest.metadata.digest,
        "LIBRA_PLAN_CHECKPOINT_DIR": task.lifecycle.checkpoint_dir,
    }
    return {key: value for key, value in identity.items() if value is not None}


def role_notes(task: TaskEntry, role: RoleEntry) -> Iterator[str]:
    """List notes for users about how a role is started."""
    if role.share_group is not None:
        others = [
            other.id for other in task.roles if other.share_group == role.share_group and other is not role
        ]
        yield (
            f"It shares GPUs with {', '.join(others) or 'another task'}: the framework must let them work in "
            f"turn (memory mode: {role.memory_mode})."
        )
    if role.mix:
        yield (
            "Its replicas have different layouts and serve ranges of the trajectories sorted by predicted "
            "length, longest first: LIBRA_PLAN_MIX lists first rank, layout and range of each."
        )
    if role.has_unequal_nodes:
        yield (
            "Its nodes have unequal numbers of ranks: torchrun documents equal numbers. It works with "
            "static rendezvous as long as TORCH_ELASTIC_WORKER_IDENTICAL is not 1."
        )
