"""Emit Kubernetes: one JobSet per task, with Kueue's queue and topology, and DRA claims by UUID.

A device plugin takes numbers of GPUs, so a role gets its exact ones only on whole nodes, or by a
claim (`dra`) that names their UUIDs. Inside a container GPUs count from 0. JobSet's controller
keeps the hand-over: `suspend` deletes the pods, which get SIGTERM and the grace period.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator

from libra_plan.planner.launchers.agents import Agent, AgentOptions, agent_reasons, agents_of
from libra_plan.planner.launchers.base import Ability, Emitter, TaskOptions
from libra_plan.planner.launchers.manifest import Manifest, Member, NodeEntry, RoleEntry, TaskEntry
from libra_plan.planner.launchers.shell import to_yaml

__all__ = ["EMITTER"]

_HOSTNAME = "kubernetes.io/hostname"
_LABELS = "libra-plan.dev"
_KUEUE = "kueue.x-k8s.io"
_JOBSET_LENGTH = 28  # of the 63 a pod's host name may have: JOBSET-JOB-0-0
_JOB_LENGTH = 28
_STOP_MARGIN_S = 30  # the pod's grace beyond torchrun's own


class KubernetesOptions(TaskOptions, frozen=True, kw_only=True):
    """How the objects are made.

    `image`: of the containers. `queue`: Kueue's local queue; without it nothing queues.
    `topology`: the label of nodes that a role must share (Kueue). `dra`: claim GPUs by UUID
    instead of whole nodes. `resource`: what the device plugin calls a GPU. `shutdown_timeout`:
    tell torchrun the grace (from 2.12 on).
    """

    image: str = ""
    namespace: str = "default"
    queue: str = ""
    topology: str = _HOSTNAME
    dra: bool = False
    device_class: str = "gpu.nvidia.com"
    resource: str = "nvidia.com/gpu"
    shutdown_timeout: bool = True


class Kubernetes(Emitter[KubernetesOptions]):
    """The Kubernetes emitter."""

    way_out = "give options, or solve with arrangements that avoid it"

    def reasons(self, picked: Manifest, whole: Manifest) -> Iterable[str]:
        """List why Kubernetes cannot start the tasks as planned."""
        yield from agent_reasons(picked, self._agent_options(picked))
        yield from _reasons(picked, self.options)

    def files(self, picked: Manifest) -> dict[str, str]:
        """Write `TASK/jobset.yaml`, with `dra` also `claims.yaml`, and with `queue` `kueue.yaml`."""
        agents = agents_of(picked, self._agent_options(picked))
        files: dict[str, str] = {}
        if self.options.queue:
            files["kueue.yaml"] = _queue_objects(picked, self.options)
        for task in picked.spec.tasks:
            mine = [agent for agent in agents if agent.task == task.id]
            head = (f"Task {task.id}, generation {task.generation}, of manifest {picked.metadata.name}.",)
            files[f"{task.id}/jobset.yaml"] = to_yaml(head, _jobset(picked, task, mine, self.options))
            if self.options.dra:
                files[f"{task.id}/claims.yaml"] = to_yaml(head, *_claims(picked, task, self.options))
        return files

    def _agent_options(self, picked: Manifest) -> AgentOptions:
        return AgentOptions(shutdown_timeout=self.options.shutdown_timeout, addresses=_addresses(picked))


EMITTER = Kubernetes(
    "kubernetes",
    ("Kubernetes 1.34 to 1.37", "JobSet v1alpha2 (08dfbdfd)", "Kueue v1beta2 (ff69552e)"),
    frozenset({Ability.GPU_IDS, Ability.MULTI_NODE, Ability.UNEQUAL_NODES, Ability.CPU_ROLES}),
    KubernetesOptions(),
)


def _reasons(manifest: Manifest, options: KubernetesOptions) -> Iterator[str]:
    if not options.image:
        yield "no image is given: --option image=REGISTRY/NAME:TAG"
    nodes = {node.id: node for node in manifest.spec.nodes}
    for task in manifest.spec.tasks:
        if task.lifecycle.stop_signal != "SIGTERM":
            yield f"{task.id}: its stop_signal is {task.lifecycle.stop_signal}; Kubernetes sends SIGTERM"
        for role in task.roles:
            for member in role.members:
                yield from _exact(f"{task.id}/{role.id}", member, nodes[member.node], options)


def _exact(where: str, member: Member, node: NodeEntry, options: KubernetesOptions) -> Iterator[str]:
    uuids = {gpu.index: gpu.uuid for gpu in node.gpus}
    if options.dra:
        unknown = [str(gpu) for gpu in member.gpus if uuids.get(gpu) is None]
        if unknown:
            yield f"{where}: a claim names UUIDs, and GPUs {' '.join(unknown)} of {node.id} have none"
    elif len(member.gpus) != len(node.gpus):
        yield (
            f"{where}: it has {len(member.gpus)} of the {len(node.gpus)} GPUs of {node.id}, and a device "
            "plugin takes numbers, not ids; whole nodes or --option dra=true"
        )


def _slug(text: str, length: int) -> str:
    """Make a DNS label; what had to be changed gets a hash, so that no two names meet."""
    plain = re.sub(r"[^a-z0-9-]", "-", text.lower()).strip("-")
    if plain == text and len(text) <= length:
        return plain
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{plain[: length - 7].rstrip('-')}-{mark}"


def _jobset_name(task: TaskEntry) -> str:
    return _slug(f"t-{task.id}-g{task.generation}", _JOBSET_LENGTH)


def _job_name(role: RoleEntry | str, rank: int) -> str:
    return _slug(f"r-{role if isinstance(role, str) else role.id}-{rank}", _JOB_LENGTH)


def _addresses(manifest: Manifest) -> dict[str, str]:
    """Name the pod of each role's rank 0: JobSet gives pods stable names in its own subdomain."""
    return {
        f"{task.id}/{role.id}": f"{_jobset_name(task)}-{_job_name(role, 0)}-0-0.{_jobset_name(task)}"
        for task in manifest.spec.tasks
        for role in task.roles
        if len(role.members) > 1
    }


def _labels(task: TaskEntry) -> dict[str, str]:
    return {f"{_LABELS}/task": task.id, f"{_LABELS}/generation": str(task.generation)}


def _jobset(
    manifest: Manifest, task: TaskEntry, agents: list[Agent], options: KubernetesOptions
) -> dict[str, object]:
    name = _jobset_name(task)
    queued = {f"{_KUEUE}/queue-name": options.queue} if options.queue else {}
    ranks: dict[str, int] = {}
    jobs = []
    for agent in agents:
        rank = ranks[agent.role] = ranks.get(agent.role, -1) + 1
        jobs.append(_job(task, agent, rank, options))
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": options.namespace,
            "labels": {**_labels(task), **queued},
            "annotations": {f"{_LABELS}/manifest": manifest.metadata.digest},
        },
        "spec": {
            "suspend": bool(options.queue),  # Kueue starts it; without a queue it starts at once
            "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
            # Ranks that fail are started again by a new generation, never one by one.
            "failurePolicy": {"maxRestarts": 0},
            "successPolicy": {"operator": "All"},
            "replicatedJobs": jobs,
        },
    }


def _job(task: TaskEntry, agent: Agent, rank: int, options: KubernetesOptions) -> dict[str, object]:
    pod: dict[str, object] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(task.lifecycle.grace_s) + _STOP_MARGIN_S,
        "nodeSelector": {_HOSTNAME: agent.node},
        "containers": [_container(task, agent, options)],
    }
    if options.dra and agent.gpus:
        claim = f"{_jobset_name(task)}-{_job_name(agent.role, rank)}"
        pod["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": claim}]
    elif agent.gpus:
        pod["tolerations"] = [{"key": options.resource, "operator": "Exists", "effect": "NoSchedule"}]
    metadata: dict[str, object] = {
        "labels": {**_labels(task), f"{_LABELS}/role": agent.role, f"{_LABELS}/node": agent.node}
    }
    if options.queue and agent.gpus:
        metadata["annotations"] = {f"{_KUEUE}/podset-required-topology": options.topology}
    return {
        "name": _job_name(agent.role, rank),
        "replicas": 1,
        "template": {
            "spec": {
                "parallelism": 1,
                "completions": 1,
                "backoffLimit": 0,
                "template": {"metadata": metadata, "spec": pod},
            }
        },
    }


def _container(task: TaskEntry, agent: Agent, options: KubernetesOptions) -> dict[str, object]:
    environment = dict(agent.environment)
    if agent.gpus:  # the container sees only these, counted from 0
        order = sorted(agent.gpus)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(order.index(gpu)) for gpu in agent.gpus)
    container: dict[str, object] = {
        "name": "main",
        "image": options.image,
        "command": [_literal(word) for word in agent.argv],
        "env": [{"name": key, "value": _literal(value)} for key, value in environment.items()],
    }
    resources = _resources(task, agent, options)
    if resources:
        container["resources"] = resources
    if agent.port is not None:
        container["ports"] = [{"name": "rendezvous", "containerPort": agent.port}]
    return container


def _literal(text: str) -> str:
    """Keep Kubernetes from reading `$(NAME)` in a command or value as a variable."""
    return text.replace("$", "$$")


def _resources(task: TaskEntry, agent: Agent, options: KubernetesOptions) -> dict[str, object]:
    role = next(role for role in task.roles if role.id == agent.role)
    cores = role.cpu_cores_per_gpu * len(agent.gpus)
    memory = role.host_memory_mib_per_gpu * len(agent.gpus)
    for share in role.cpu:
        if share.node == agent.node:
            cores, memory = cores + share.cpu_cores, memory + share.host_memory_mib
    requests: dict[str, object] = {}
    if cores > 0:
        requests["cpu"] = f"{math.ceil(1000 * cores)}m"
    if memory > 0:
        requests["memory"] = f"{math.ceil(memory)}Mi"
    found: dict[str, object] = {}
    if agent.gpus and options.dra:
        found["claims"] = [{"name": "gpus"}]
    elif agent.gpus:
        found["limits"] = {options.resource: len(agent.gpus)}
        requests[options.resource] = len(agent.gpus)
    return {**found, "requests": requests} if requests else found


def _claims(manifest: Manifest, task: TaskEntry, options: KubernetesOptions) -> Iterator[dict[str, object]]:
    nodes = {node.id: node for node in manifest.spec.nodes}
    for role in task.roles:
        for rank, member in enumerate(role.members):
            uuids = {gpu.index: gpu.uuid for gpu in nodes[member.node].gpus}
            wanted = ", ".join(_cel(uuids[gpu] or "") for gpu in member.gpus)
            selector = f"device.attributes['{options.device_class}'].uuid in [{wanted}]"
            exactly = {
                "deviceClassName": options.device_class,
                "allocationMode": "ExactCount",
                "count": len(member.gpus),
                "selectors": [{"cel": {"expression": selector}}],
            }
            yield {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {
                    "name": f"{_jobset_name(task)}-{_job_name(role, rank)}",
                    "namespace": options.namespace,
                    "labels": _labels(task),
                },
                "spec": {"spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}},
            }


def _cel(text: str) -> str:
    """Quote a string for the Common Expression Language."""
    return (
        "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"
    )


def _queue_objects(manifest: Manifest, options: KubernetesOptions) -> str:
    """Write Kueue's topology, flavor, cluster queue and local queue; quotas are the inventory."""
    nodes, queue = manifest.spec.nodes, options.queue
    quotas: dict[str, object] = {options.resource: sum(len(node.gpus) for node in nodes)}
    if all(node.cpu_cores is not None for node in nodes):
        quotas["cpu"] = f"{int(sum(node.cpu_cores or 0.0 for node in nodes))}"
    if all(node.host_memory_mib is not None for node in nodes):
        quotas["memory"] = f"{int(sum(node.host_memory_mib or 0.0 for node in nodes))}Mi"
    resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
    group = {"coveredResources": list(quotas), "flavors": [{"name": queue, "resources": resources}]}
    objects: dict[str, object] = {
        "Topology": {"levels": [{"nodeLabel": _HOSTNAME}]},
        "ResourceFlavor": {"nodeLabels": {"kubernetes.io/os": "linux"}, "topologyName": queue},
        "ClusterQueue": {"namespaceSelector": {}, "resourceGroups": [group]},
        "LocalQueue": {"clusterQueue": queue},
    }
    documents = []
    for kind, spec in objects.items():
        namespace = {"namespace": options.namespace} if kind == "LocalQueue" else {}
        metadata = {"name": queue, **namespace}
        documents.append(
            {"apiVersion": f"{_KUEUE}/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}
        )
    return to_yaml(
        (
            "Apply once per cluster; skip what your administrators have made already.",
            "Quotas are those of the inventory: the planner divides, Kueue only starts and stops.",
        ),
        *documents,
    )
