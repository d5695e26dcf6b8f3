"""Emit Ray clusters: one per task, whose raylets see only the task's GPUs.

Ray takes no GPU ids, but a raylet counts only what `CUDA_VISIBLE_DEVICES` shows it. So each task
gets a cluster of its own: own ports, own folder, own labels. `ray stop` ends all of a host's
clusters; the scripts record a process id and its start time instead, and stop that.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from libra_plan.planner.launchers.base import NO_ADDRESS, Ability, Emitter, TaskOptions
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, TaskEntry
from libra_plan.planner.launchers.shell import bracketed, exports, script, words

__all__ = ["EMITTER", "RayOptions", "ray_files", "ray_reasons"]

_EPHEMERAL_PORT = 32_768  # where Linux begins to hand out ports by itself
_FIXED_PORTS = 12  # of a task's block; the rest is for workers
_FOLDER_LENGTH = 43  # Ray adds 64 characters to reach its sockets, whose paths end at 107
# State and start time; the name before them ends with the last bracket and may hold anything.
_STATE = "sed 's/.*) //' /proc/{pid}/stat | cut -d ' ' -f 1,20"
_STORE_SHARE = 0.3  # of host memory, Ray's default for one cluster on a host


class RayOptions(TaskOptions, frozen=True, kw_only=True):
    """How the Ray clusters of tasks are started.

    `port_base`: first port of all clusters on a node; a cluster takes `ports_per_task` of them.
    `folder`: for sessions, sockets and process ids, on a local disk. `wait_s`: how long the driver
    waits for all GPUs.
    """

    port_base: Annotated[int, Meta(ge=1024, le=65_535)] = 10_000
    ports_per_task: Annotated[int, Meta(ge=32, le=10_000)] = 200
    folder: Annotated[str, Meta(pattern=r"^/[A-Za-z0-9._/-]+\Z")] = "/var/tmp/libra-plan"
    wait_s: Annotated[int, Meta(ge=1)] = 300


class Ray(Emitter[RayOptions]):
    """The Ray emitter: what any Ray program needs; Ray places its actors among the task's GPUs."""

    way_out: ClassVar[str] = "solve with arrangements that avoid it, or pick tasks"

    def reasons(self, picked: Manifest, whole: Manifest) -> Iterable[str]:
        """List why tasks cannot have a Ray cluster."""
        return [reason for task in picked.spec.tasks for reason in ray_reasons(picked, task, self.options)]

    def files(self, picked: Manifest) -> dict[str, str]:
        """Write `TASK/ray/NODE.sh`, `NODE-stop.sh` and `driver.sh` for each task."""
        files: dict[str, str] = {}
        for task in picked.spec.tasks:
            files |= ray_files(picked, task, self.options)
        return files


EMITTER = Ray(
    "ray",
    ("2.60.0",),
    frozenset({Ability.TASK_GPUS, Ability.MULTI_NODE, Ability.SHARED_GPUS}),
    RayOptions(),
)


def ray_reasons(manifest: Manifest, task: TaskEntry, options: RayOptions) -> Iterator[str]:
    """List why a task cannot have a Ray cluster."""
    nodes = manifest.spec.nodes_of(task)
    if not nodes:
        yield f"{task.id} has no GPUs, and its cluster would see none"
    for node in nodes:
        first, last = _ports(task, node, options)
        if last >= _EPHEMERAL_PORT:
            yield f"{task.id} would need ports up to {last} on {node.id}, where Linux hands out its own"
        if first <= node.port_range[1] and node.port_range[0] <= last:
            low, high = node.port_range
            yield f"{task.id} would need ports {first}-{last} on {node.id}; {low}-{high} are for rendezvous"
        if len(nodes) > 1 and node.address is None:
            yield f"{task.id}: node {node.id} {NO_ADDRESS}, and the task has several nodes"
    if len(_folder(task, options)) > _FOLDER_LENGTH:
        yield f"folder {options.folder} is too long: paths of sockets end at 107 characters"


def ray_files(
    manifest: Manifest,
    task: TaskEntry,
    options: RayOptions,
    *,
    head: str | None = None,
    least_cpus_per_gpu: int = 1,
    environment: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, str]:
    """Write the scripts of a task's cluster.

    `head` is the node that rules it, the first by default; `environment` adds variables by node.
    """
    nodes = manifest.spec.nodes_of(task)
    head_node = next((node for node in nodes if node.id == head), nodes[0])
    digest = manifest.metadata.digest
    files: dict[str, str] = {}
    for node in nodes:
        extra = {"LIBRA_PLAN_MANIFEST_DIGEST": digest, **(environment or {}).get(node.id, {})}
        argv = _start(task, node, head_node, least_cpus_per_gpu, options)
        files[f"{task.id}/ray/{node.id}.sh"] = _start_script(task, node, extra, argv, options)
        files[f"{task.id}/ray/{node.id}-stop.sh"] = _stop_script(task, node, options)
    files[f"{task.id}/ray/driver.sh"] = _driver(task, nodes, head_node, options)
    return files


def _ports(task: TaskEntry, node: NodeEntry, options: RayOptions) -> tuple[int, int]:
    """Return the first and last port of a task: a kept task keeps its rendezvous ports, and so its block."""
    ports = [member.port for role in task.roles for member in role.members if member.node == node.id]
    first = options.port_base + (min(ports) - node.port_range[0]) * options.ports_per_task
    return first, first + options.ports_per_task - 1


def _folder(task: TaskEntry, options: RayOptions) -> str:
    name = hashlib.sha256(f"{task.id} {task.generation}".encode()).hexdigest()[:8]
    return f"{options.folder.rstrip('/')}/{name}"


def _address(node: NodeEntry) -> str:
    return "127.0.0.1" if node.address is None else bracketed(node.address)


def _start(
    task: TaskEntry, node: NodeEntry, head: NodeEntry, least_cpus_per_gpu: int, options: RayOptions
) -> tuple[str, ...]:
    gpus = task.gpus_on(node.id)
    first, last = _ports(task, node, options)
    head_port = _ports(task, head, options)[0]
    cores = sum(
        role.cpu_cores_per_gpu * len(member.gpus)
        for role in task.roles
        for member in role.members
        if member.node == node.id
    )
    flags: dict[str, object] = {}
    if node.id == head.id:
        flags |= {"--port": head_port, "--ray-client-server-port": first + 1}
        flags |= {"--dashboard-host": "127.0.0.1", "--dashboard-port": first + 2}
    else:
        flags["--address"] = f"{_address(head)}:{head_port}"
    if node.address is not None:
        flags["--node-ip-address"] = node.address
    flags |= {
        "--num-gpus": len(gpus),
        "--num-cpus": max(math.floor(cores), least_cpus_per_gpu * len(gpus)),
        "--node-manager-port": first + 3,
        "--object-manager-port": first + 4,
        "--runtime-env-agent-port": first + 5,
        "--dashboard-agent-grpc-port": first + 6,
        "--dashboard-agent-listen-port": first + 7,
        "--metrics-export-port": first + 8,
        "--min-worker-port": first + _FIXED_PORTS,
        "--max-worker-port": last,
        "--temp-dir": _folder(task, options),
        "--labels": f"libra-plan.task={task.id},libra-plan.node={node.id}",
        "--resources": json.dumps({f"libra-plan-{node.id}": 1}),
    }
    if node.host_memory_mib is not None:  # several clusters would each take Ray's share of the host
        store = _STORE_SHARE * node.host_memory_mib * len(gpus) / max(len(node.gpus), 1)
        flags["--object-store-memory"] = math.floor(store) * 2**20
    pairs = (word for flag, value in flags.items() for word in (flag, str(value)))
    head_flag = ("--head",) if node.id == head.id else ()
    return ("ray", "start", "--block", "--disable-usage-stats", *head_flag, *pairs)


def _start_script(
    task: TaskEntry,
    node: NodeEntry,
    extra: Mapping[str, str],
    argv: tuple[str, ...],
    options: RayOptions,
) -> str:
    environment = {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in task.gpus_on(node.id)),
        "LIBRA_PLAN_TASK": task.id,
        "LIBRA_PLAN_NODE": node.id,
        "LIBRA_PLAN_GENERATION": str(task.generation),
        **extra,
    }
    return script(
        (
            f"Ray cluster of task {task.id}, generation {task.generation}: node {node.id}.",
            "It stays in the foreground; the head comes first. Nodes need one token (Ray 2.60 on).",
        ),
        (
            *exports(environment),
            f"mkdir -p {words([_folder(task, options)])}",
            # The start time tells this process from a later one with its number.
            f"state=$({_STATE.format(pid='$$')})",
            f'echo "$$ ${{state#* }}" > {words([_record(task, node, options)])}',
            "exec " + words(argv),
        ),
    )


def _record(task: TaskEntry, node: NodeEntry, options: RayOptions) -> str:
    return f"{_folder(task, options)}/{node.id}.pid"


def _stop_script(task: TaskEntry, node: NodeEntry, options: RayOptions) -> str:
    return script(
        (f"Stop the Ray cluster of task {task.id} on node {node.id}, and nothing else.",),
        (
            f"read -r pid started < {words([_record(task, node, options)])}",
            "runs() {",  # a zombie has ended; a later process with this number started later
            f"    state=$({_STATE.format(pid='$pid')} 2>/dev/null) || return 1",
            '    [ "${state#* }" = "$started" ] && [ "${state%% *}" != Z ]',
            "}",
            'if ! runs; then echo "process $pid is not running any more" >&2; exit 0; fi',
            'kill -TERM "$pid"',
            f"left={math.ceil(task.lifecycle.grace_s)}",
            "while runs; do",
            '    if [ "$left" -le 0 ]; then echo "process $pid still runs" >&2; exit 1; fi',
            "    sleep 1; left=$((left - 1))",
            "done",
        ),
    )


_WAIT = """\
import sys, time, ray
wanted, last = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
ray.init(address=sys.argv[3], log_to_driver=False)
while (there := ray.cluster_resources().get("GPU", 0)) != wanted:
    if time.monotonic() > last:
        sys.exit(f"the cluster has {there:g} GPUs, {wanted} are planned")
    time.sleep(1)
"""


def _driver(task: TaskEntry, nodes: tuple[NodeEntry, ...], head: NodeEntry, options: RayOptions) -> str:
    """Wait for all GPUs, since Ray leaves what does not fit pending for ever; then run a command."""
    gpus = sum(len(task.gpus_on(node.id)) for node in nodes)
    address = f"{_address(head)}:{_ports(task, head, options)[0]}"
    wait = words(["python3", "-c", _WAIT, str(gpus), str(options.wait_s), address])
    return script(
        (f"Run a command in the cluster of task {task.id}, on node {head.id}: driver.sh COMMAND ...",),
        (f"export RAY_ADDRESS={words([address])}", wait, 'exec "$@"'),
    )
