"""The schema of a placement manifest, the contract between the planner and launchers.

Keys are camelCase in files (`stopSignal`) and carry their unit (`graceS`, `memoryMib`). A value
that is not known is null. Lists keep their order, because order is rank order.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "API_VERSION",
    "KIND",
    "CouplingEntry",
    "CpuShareEntry",
    "DeadlineEntry",
    "DegreesEntry",
    "GpuEntry",
    "JointEntry",
    "Lifecycle",
    "Manifest",
    "ManifestCertificate",
    "ManifestInputs",
    "Member",
    "Metadata",
    "NodeEntry",
    "Objective",
    "PassEntry",
    "PredictedValue",
    "QueuedEntry",
    "RangedEntry",
    "Rendezvous",
    "RoleEntry",
    "Spec",
    "TaskEntry",
    "TeamEntry",
    "Transition",
    "manifest_schema",
]

API_VERSION: Final = "libra-plan/v1alpha1"
KIND: Final = "PlacementManifest"

# `(?!\n)` because Python's `$` also matches before a final newline; the pattern is valid ECMA-262 too.
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(?!\n)$", max_length=63)]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}(?!\n)$")]
_GPU = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?:(0|[1-9][0-9]*)(?!\n)$"
GpuRef = Annotated[str, Meta(pattern=_GPU, description="node:index")]
PortNumber = Annotated[int, Meta(ge=1, le=65535)]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
NonNegative = Annotated[float, Meta(ge=0)]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The base of all entries."""


class PredictedValue(_Entry, frozen=True):
    """A predicted number with its bounds, unit and origin; null where not known."""

    value: float
    low: float | None
    high: float
    unit: str
    origin: Literal["measured", "interpolated", "extrapolated", "assumed"] | None


class GpuEntry(_Entry, frozen=True):
    """One GPU of a node; the UUID, where known, proves that it is still the same card.

    A seat on a GPU that two roles share has an index of its own; `device` is that of its GPU.
    """

    index: Whole
    uuid: str | None
    gpu_class: str = msgspec.field(name="class")
    memory_mib: NonNegative
    device: Whole | msgspec.UnsetType = msgspec.UNSET

    @property
    def card(self) -> int:
        """The index by which the driver knows the GPU."""
        return self.index if isinstance(self.device, msgspec.UnsetType) else self.device


class NodeEntry(_Entry, frozen=True):
    """One node with the GPUs the plan may use; `port_range` is first and last, both included."""

    id: Name
    address: str | None
    port_range: tuple[PortNumber, PortNumber]
    cpu_cores: NonNegative | None
    host_memory_mib: NonNegative | None
    gpus: tuple[GpuEntry, ...]


class DegreesEntry(_Entry, frozen=True):
    """Parallel degrees of a role; a replica takes tp·pp·cp GPUs and `dp` counts the replicas."""

    tp: Count
    pp: Count
    cp: Count
    ep: Count
    dp: Count


class RangedEntry(_Entry, frozen=True):
    """The layout of one replica of a mix, and the trajectories it serves.

    Sorted by predicted length, longest first, it serves positions start, start + stride, ... below stop.
    """

    tp: Count
    pp: Count
    cp: Count
    ep: Count
    start: Whole
    stop: Whole
    stride: Count


class Member(_Entry, frozen=True):
    """The ranks of a role on one node: the i-th of `gpus` is local rank i. Members are in node-rank order."""

    node: Name
    gpus: tuple[Whole, ...]
    port: PortNumber


class Rendezvous(_Entry, frozen=True):
    """Where the ranks of a role meet: on the node of rank 0, under an id that carries the generation."""

    node: Name
    port: PortNumber
    id: str


class CpuShareEntry(_Entry, frozen=True):
    """Workers of a CPU-only role on one node, with the cores and host memory (MiB) of all of them."""

    node: Name
    workers: Count
    cpu_cores: NonNegative
    host_memory_mib: NonNegative


class RoleEntry(_Entry, frozen=True):
    """One role of a task: its ranks, or its CPU shares.

    `phase` and `pool` number where it stands in the task's configuration. Roles of a task, or of tasks that
    run jointly, with the same `share_group` take the same GPUs in turn, and `memory_mode` says
    whether their state stays on the GPU meanwhile. `peak_memory` is per GPU and of the whole pool,
    MiB, an upper bound. `host_memory_mib_per_gpu` holds the state that sleeps or is offloaded there
    too. A rollout whose replicas serve ranges of predicted lengths has no single layout: `mix[i]` is
    that of `replicas[i]`.
    """

    id: Name
    kind: str
    layout: DegreesEntry | None
    replicas: tuple[tuple[GpuRef, ...], ...]
    members: tuple[Member, ...]
    phase: Whole | None
    pool: Whole | None
    share_group: Name | None
    memory_mode: Literal["resident", "sleep"] | None
    rendezvous: Rendezvous | None
    command: tuple[str, ...]
    cpu_cores_per_gpu: NonNegative
    host_memory_mib_per_gpu: NonNegative
    cpu: tuple[CpuShareEntry, ...]
    stage_time: PredictedValue | None
    peak_memory: PredictedValue | None
    mix: tuple[RangedEntry, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def ranks(self) -> tuple[tuple[str, int], ...]:
        """The (node, GPU index) of every rank, in rank order."""
        return tuple((member.node, gpu) for member in self.members for gpu in member.gpus)

    @property
    def trains(self) -> bool:
        """Whether the role holds state that only a checkpoint keeps."""
        return self.kind.endswith("_train")

    @property
    def has_unequal_nodes(self) -> bool:
        """Whether its nodes have different numbers of ranks."""
        return len({len(member.gpus) for member in self.members}) > 1


class Lifecycle(_Entry, frozen=True):
    """How the task's processes are stopped and where they keep their checkpoints.

    `checkpoint_sentinel` is a file in that folder in which a framework keeps the step it saved last.
    Only a `reshardable` task may be moved to another number of training ranks.
    """

    stop_signal: Literal["SIGTERM", "SIGINT", "SIGUSR1"]
    grace_s: Annotated[float, Meta(gt=0)]
    checkpoint_dir: str | None
    checkpoint_sentinel: str | msgspec.UnsetType = msgspec.UNSET
    reshardable: bool | msgspec.UnsetType = msgspec.UNSET


class CouplingEntry(_Entry, frozen=True):
    """How the task's pools overlap; `staleness_steps` is in policy versions.

    `rollouts` is there where async rollouts generate batch by batch; else they are a stream.
    """

    kind: Literal["sync", "async", "pipelined"]
    staleness_steps: Whole
    groups: Count | None
    rollouts: Literal["batches"] | msgspec.UnsetType = msgspec.UNSET


class TaskEntry(_Entry, frozen=True):
    """One running task. `generation` is that of the manifest its processes were started under."""

    id: Name
    generation: Count
    coupling: CouplingEntry
    roles: tuple[RoleEntry, ...]
    lifecycle: Lifecycle
    step_time: PredictedValue
    normalised: float

    @property
    def gpus(self) -> frozenset[str]:
        """The GPUs of the task as `node:index`."""
        return frozenset(gpu for role in self.roles for replica in role.replicas for gpu in replica)

    def gpus_on(self, node: str) -> tuple[int, ...]:
        """List the GPUs of the task on a node, ascending."""
        return tuple(sorted({gpu for role in self.roles for at, gpu in role.ranks if at == node}))


class JointEntry(_Entry, frozen=True):
    """Tasks that run jointly: they alone may have roles on the same GPUs.

    `turns` lists what works at once, as `task/role`; the lists follow one another and begin again,
    one step of every task in each round.
    """

    kind: Literal["turns"]
    tasks: tuple[Name, ...]
    turns: tuple[tuple[str, ...], ...]


class QueuedEntry(_Entry, frozen=True):
    """A task that waits: a stable code for scripts and a sentence for people."""

    task: Name
    code: str
    reason: str


class Transition(_Entry, frozen=True):
    """One step from the parent to this manifest; it may begin when every step in `after` is through.

    `resize` and `move` stop the task's processes and start them on the new GPUs: `resize` when the
    number of GPUs changes, `move` when anything else about the placement or command does. Tasks
    that want each other's GPUs are told apart by an early `stop` and a late `start` of one of them.
    """

    id: str
    task: Name
    action: Literal["start", "stop", "resize", "move", "keep"]
    gpus_before: Whole
    gpus_after: Whole
    after: tuple[str, ...]


class Objective(_Entry, frozen=True):
    """A named value of the objective: a bound or a baseline."""

    name: str
    value: float


class PassEntry(_Entry, frozen=True):
    """One of several things settled in order, such as a tier, and what no plan could better."""

    name: str
    objective: float
    bound: float


class DeadlineEntry(_Entry, frozen=True):
    """A deadline that is not kept: the rate it asks, the rate there is, and the best there could be.

    Steps per second; alone on the cluster, and beside the deadlines that are kept. `code` is `deadline`.
    """

    task: Name
    code: str
    wanted_steps_per_s: float | None
    steps_per_s: NonNegative
    best_alone_steps_per_s: float | None
    best_beside_steps_per_s: float | None


class TeamEntry(_Entry, frozen=True):
    """A team's GPUs, those of them beyond its quota, and its worth, within its quota and now."""

    team: str
    quota_gpus: Whole
    gpus: Whole
    borrowed_gpus: Whole
    worth_at_quota: float
    worth: float


class ManifestCertificate(_Entry, frozen=True):
    """What the solver proved: no plan of this problem has a larger objective than `bound`.

    `duals` are prices, at least 0, of the constraints by name, from which the bound can be computed again.
    Costs are in the currency of the cluster's prices. What does not apply is left out.
    """

    policy: str
    status: Literal["optimal", "feasible"]
    objective: float
    bound: float
    gap: float
    bounds: tuple[Objective, ...]
    baselines: tuple[Objective, ...]
    deterministic: bool
    cost_per_hour: NonNegative | msgspec.UnsetType = msgspec.UNSET
    budget_per_hour: NonNegative | msgspec.UnsetType = msgspec.UNSET
    passes: tuple[PassEntry, ...] | msgspec.UnsetType = msgspec.UNSET
    deadlines: tuple[DeadlineEntry, ...] | msgspec.UnsetType = msgspec.UNSET
    teams: tuple[TeamEntry, ...] | msgspec.UnsetType = msgspec.UNSET
    duals: dict[str, NonNegative] | msgspec.UnsetType = msgspec.UNSET


class ManifestInputs(_Entry, frozen=True):
    """The inputs of the plan: their digests, and the planner's version."""

    digests: dict[str, str]
    planner: str
    horizon_s: float


class Spec(_Entry, frozen=True):
    """The plan itself."""

    inputs: ManifestInputs
    nodes: tuple[NodeEntry, ...]
    tasks: tuple[TaskEntry, ...]
    queued: tuple[QueuedEntry, ...]
    transitions: tuple[Transition, ...]
    certificate: ManifestCertificate
    joint: tuple[JointEntry, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def together(self) -> dict[str, JointEntry]:
        """Map every task that runs jointly to what it takes part in."""
        return {task: entry for entry in self.joint or () for task in entry.tasks}

    def nodes_of(self, task: TaskEntry) -> tuple[NodeEntry, ...]:
        """List the nodes where a task has GPUs, in the order of the inventory."""
        used = {node for role in task.roles for node, _ in role.ranks}
        return tuple(node for node in self.nodes if node.id in used)


class Metadata(_Entry, frozen=True):
    """Which manifest this is; `digest` is over the RFC 8785 JSON of everything but itself."""

    name: Name
    generation: Count
    parent_digest: Digest | None
    digest: Digest


class Manifest(_Entry, frozen=True):
    """A placement manifest: what runs where, how ranks meet, and the steps from the parent."""

    api_version: Literal["libra-plan/v1alpha1"]
    kind: Literal["PlacementManifest"]
    metadata: Metadata
    spec: Spec


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a manifest."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:libra-plan:v1alpha1:placement-manifest",
        "title": "PlacementManifest",
        **msgspec.json.schema(Manifest),
    }
