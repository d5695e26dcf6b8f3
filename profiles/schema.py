"""The typed, frozen schema of every file a user writes: profile, switching, workload, cluster.

Units are in the key. Unknown keys, wrong types and missing units are refused by the reader
(`document.py`), which knows the line of every key.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "ClusterFile",
    "CouplingSpec",
    "Distribution",
    "GpuSpec",
    "Hardware",
    "LayoutSpec",
    "Method",
    "ModelShape",
    "NodeSpec",
    "Phase",
    "Point",
    "ProfileFile",
    "Provenance",
    "RoleKind",
    "RoleSpec",
    "SharedRate",
    "Software",
    "Spread",
    "SwitchingFile",
    "TaskSpec",
    "WorkSpec",
    "WorkloadFile",
]

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$(?!\n)", max_length=63)]
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]

Phase = Literal["decode", "serve", "score", "train"]
RoleKind = Literal[
    "actor_train",
    "critic_train",
    "reward_train",
    "rollout",
    "reference",
    "reward",
    "critic_score",
    "judge",
    "env",
]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


# ---------------------------------------------------------------- profile


class ModelShape(_File, frozen=True, kw_only=True):
    """The dimensions of a transformer that costs and divisibility laws need."""

    id: str
    params: Count
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    vocab: Count
    active_params: Count | None = None
    experts: Count | None = None
    revision: str | None = None
    config_sha256: str | None = None


class Hardware(_File, frozen=True, kw_only=True):
    """What the points were measured on. `gpu_class` is the key that must match the cluster's."""

    gpu_class: Name
    nvml_name: str | None = None
    memory_mib: Positive
    gpus_per_node: Count | None = None
    power_limit_w: Positive | None = None
    mig: bool = False
    intra_node_gib_per_s: Positive | None = None
    inter_node_gib_per_s: Positive | None = None
    host_link_gib_per_s: Positive | None = None
    driver: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    cpu: str | None = None


class Software(_File, frozen=True, kw_only=True):
    """The stack: two profiles with different software are different profiles."""

    framework: str
    version: str
    precision: str
    recompute: str | None = None
    mode: str | None = None
    zero_stage: Annotated[int, Meta(ge=0, le=3)] = 0
    lora_rank: Count | None = None
    kv_precision: str | None = None
    torch: str | None = None
    transformers: str | None = None
    commit: str | None = None
    image: str | None = None
    flags: dict[str, str | int | float | bool] = {}


class Method(_File, frozen=True, kw_only=True):
    """How it was measured."""

    date: str | None = None
    seed: int | None = None
    warmup: Whole | None = None
    repeats: Count | None = None
    clock: str | None = None
    exclusive: bool | None = None
    tokens_counted: Literal["input", "output", "input+output"]
    throughput_basis: Literal["total", "per_gpu"]
    tpot_definition: str | None = None


class Provenance(_File, frozen=True, kw_only=True):
    """Where the points come from; `points_sha256` pins the file."""

    kind: Literal["measured", "published", "simulated", "derived"]
    points_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
    source: str | None = None
    source_sha256: str | None = None
    source_url: str | None = None
    source_commit: str | None = None
    licence: str | None = None


class ProfileFile(_File, frozen=True, kw_only=True):
    """`profile.yaml`: one model, one phase, one stack on one GPU class; the points lie beside it."""

    schema_version: Literal[1]
    id: Name
    phase: Phase
    model: ModelShape
    hardware: Hardware
    software: Software
    method: Method
    provenance: Provenance
    points: str = "points.csv"
    notes: str = ""


class Point(_File, frozen=True, kw_only=True):
    """One row of `points.csv`. What a phase does not use is empty.

    decode: one step of `batch_sequences` at context `seq_len_tokens`. serve: TPOT at concurrency
    `batch_sequences` with `prompt_tokens`/`output_tokens`. score and train: one forward or one
    optimizer step over `batch_sequences` × `seq_len_tokens` per data-parallel rank.
    """

    status: Literal["ok", "oom", "failed"] = "ok"
    batch_sequences: Count
    seq_len_tokens: Count | None = None
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1
    dp: Count = 1
    repeats: Count | None = None
    time_s: Positive | None = None
    time_low_s: Positive | None = None
    time_high_s: Positive | None = None
    ttft_s: Positive | None = None
    tokens_per_s: Positive | None = None
    peak_allocated_mib: Positive | None = None
    peak_reserved_mib: Positive | None = None
    device_used_mib: Positive | None = None
    kv_capacity_tokens: Count | None = None


# ---------------------------------------------------------------- switching


class Spread(_File, frozen=True, kw_only=True):
    """A measured quantity: its median, least and greatest value, and the 90th percentile of `n` readings.

    The unit is in the key that holds the spread.
    """

    typical: Positive
    low: Positive
    high: Positive
    p90: Positive
    n: Count


class SharedRate(_File, frozen=True, kw_only=True):
    """Two processes time-slicing one GPU: the share of its own solo rate that each kept."""

    a: str
    b: str
    rate_a: Positive
    rate_b: Positive


class SwitchingFile(_File, frozen=True, kw_only=True):
    """`switching.yaml`: what it costs to start, stop and move a role on one GPU class.

    `start_s`: from the launcher's start to ranks ready to work (imports, CUDA, NCCL). `save` and
    `load`: a checkpoint through the file system. `p2p`: GPU to GPU in one node; `pinned_host` and
    `pageable_host`: GPU to host memory. Absent means not measured.
    """

    schema_version: Literal[1]
    gpu_class: Name
    start_s: Spread
    save_gib_per_s: Spread
    load_gib_per_s: Spread
    p2p_gib_per_s: Spread | None = None
    pinned_host_gib_per_s: Spread | None = None
    pageable_host_gib_per_s: Spread | None = None
    broadcast_gib_per_s: Spread | None = None
    all_reduce_gib_per_s: Spread | None = None
    shared_gpu: tuple[SharedRate, ...] = ()
    kind: Literal["measured", "published", "simulated", "derived"]
    source: str | None = None
    source_sha256: str | None = None
    notes: str = ""


# ---------------------------------------------------------------- workload


class Fixed(_File, frozen=True, kw_only=True, tag="fixed", tag_field="kind"):
    """Every length is the same."""

    tokens: Count


class LogNormal(_File, frozen=True, kw_only=True, tag="lognormal", tag_field="kind"):
    """A long-tailed length: log-normal with this median and sigma, cut at `max_tokens`."""

    median_tokens: Positive
    sigma: NonNegative
    max_tokens: Count


class Histogram(_File, frozen=True, kw_only=True, tag="histogram", tag_field="kind"):
    """Lengths in bins: `edges_tokens` has one more entry than `counts`."""

    edges_tokens: tuple[Whole, ...]
    counts: tuple[NonNegative, ...]


class Trace(_File, frozen=True, kw_only=True, tag="trace", tag_field="kind"):
    """Observed lengths: a text or CSV file with one length a line, relative to the workload."""

    file: str


Distribution = Fixed | LogNormal | Histogram | Trace


class WorkSpec(_File, frozen=True, kw_only=True):
    """The work of one step of a task.

    `response_tokens` is what one sample generates over all of its `turns` together; a task without
    it (reward-model training) works on `prompt_tokens` alone.
    """

    samples: Count
    prompt_tokens: Distribution
    response_tokens: Distribution | None = None
    turns: Count = 1


class CouplingSpec(_File, frozen=True, kw_only=True):
    """How the task's pools overlap; `staleness_steps` ≥ 1 only with async."""

    kind: Literal["sync", "async", "pipelined"] = "sync"
    staleness_steps: Whole = 0
    groups: Count | None = None


class LayoutSpec(_File, frozen=True, kw_only=True):
    """A layout the role may use; data parallelism is the planner's to choose."""

    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1


class RoleSpec(_File, frozen=True, kw_only=True):
    """A role of a task. GPU roles name their profiles; `env` states its CPU need and tool waits.

    `profiles`: one profile id per phase the role goes through (rollout: decode or serve, and
    optionally score for its prefill; train roles: train; scoring roles: score). `min_gpus`,
    `max_gpus`, `pinned_gpus` and `excluded_gpus` ("node:index" or UUID) bound the placement.
    Host memory is what the processes take; the planner adds the state it puts to sleep there.
    """

    id: Name
    kind: RoleKind
    profiles: tuple[Name, ...] = ()
    layouts: tuple[LayoutSpec, ...] = ()
    micro_batch_tokens: Count | None = None
    max_concurrency: Count | None = None
    can_sleep: bool = True
    min_gpus: Count = 1
    max_gpus: Count | None = None
    pinned_gpus: tuple[str, ...] = ()
    excluded_gpus: tuple[str, ...] = ()
    cpu_cores_per_gpu: NonNegative = 0.0
    host_memory_mib_per_gpu: NonNegative = 0.0
    workers: Count | None = None
    cpu_cores_per_worker: NonNegative | None = None
    host_memory_mib_per_worker: NonNegative | None = None
    tool_wait_s_per_turn: NonNegative | None = None
    command: tuple[str, ...] = ()


class LifecycleSpec(_File, frozen=True, kw_only=True):
    """How the task is stopped and resumed; what the manifest hands to launchers."""

    stop_signal: Literal["SIGTERM", "SIGINT", "SIGUSR1"] = "SIGTERM"
    grace_s: Positive = 600.0
    checkpoint_dir: str | None = None
    restart_s: NonNegative | None = None


class TaskSpec(_File, frozen=True, kw_only=True):
    """A post-training job that wants GPUs."""

    id: Name
    description: str = ""
    weight: Positive = 1.0
    work_per_step: WorkSpec
    coupling: CouplingSpec = CouplingSpec()
    arrangements: tuple[Literal["colocated", "separate", "hybrid"], ...] = ("colocated", "separate", "hybrid")
    roles: tuple[RoleSpec, ...]
    roles_fill_pools: bool = False
    lifecycle: LifecycleSpec = LifecycleSpec()
    min_gpus: Whole = 0
    max_gpus: Count | None = None


class WorkloadFile(_File, frozen=True, kw_only=True):
    """`workload.yaml`: the tasks that share a cluster."""

    schema_version: Literal[1]
    tasks: tuple[TaskSpec, ...]
    horizon_s: Positive = 3600.0


# ---------------------------------------------------------------- cluster


class GpuSpec(_File, frozen=True, kw_only=True):
    """One GPU of a node."""

    index: Whole
    uuid: str | None = None
    memory_mib: Positive | None = None
    excluded: bool = False


class NodeSpec(_File, frozen=True, kw_only=True):
    """One node: either `gpu_count` equal GPUs, or `gpus` one by one."""

    id: Name
    gpu_class: Name
    gpu_count: Count | None = None
    gpus: tuple[GpuSpec, ...] = ()
    gpu_memory_mib: Positive | None = None
    address: str | None = None
    cpu_cores: Positive | None = None
    host_memory_mib: Positive | None = None
    port_first: Annotated[int, Meta(ge=1024, le=65535)] = 24000
    port_last: Annotated[int, Meta(ge=1024, le=65535)] = 24999
    excluded: bool = False


class ClusterFile(_File, frozen=True, kw_only=True):
    """`cluster.yaml`: the nodes and the bandwidth inside and between them."""

    schema_version: Literal[1]
    name: Name = "cluster"
    nodes: tuple[NodeSpec, ...]
    intra_node_gib_per_s: Positive | None = None
    inter_node_gib_per_s: Positive | None = None
