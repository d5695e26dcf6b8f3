"""The typed, frozen schema of every file a user writes: profile, switching, workload, cluster.

Units are in the key. Unknown keys, wrong types and missing units are refused by the reader
(`document.py`), which knows the line of every key. The workload's part is in `schema_workload.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from libra_plan.profiles.schema_base import Address, Count, File, Name, NonNegative, Positive, Whole
from libra_plan.profiles.schema_workload import (
    CouplingSpec,
    DeadlineSpec,
    Distribution,
    Fixed,
    Histogram,
    LayoutSpec,
    LifecycleSpec,
    LogNormal,
    LoraSpec,
    MixedLayoutsSpec,
    QuotaSpec,
    RoleKind,
    RoleSpec,
    SharingSpec,
    TaskSpec,
    Trace,
    WorkloadFile,
    WorkSpec,
)

__all__ = [
    "ClusterFile",
    "CouplingSpec",
    "DeadlineSpec",
    "Distribution",
    "Fixed",
    "GpuSpec",
    "Hardware",
    "Histogram",
    "LayoutSpec",
    "LifecycleSpec",
    "LogNormal",
    "LoraSpec",
    "Method",
    "MixedLayoutsSpec",
    "ModelShape",
    "NodeSpec",
    "Phase",
    "Point",
    "ProfileFile",
    "Provenance",
    "QuotaSpec",
    "RoleKind",
    "RoleSpec",
    "SharedRate",
    "SharingSpec",
    "Software",
    "Spread",
    "SwitchingFile",
    "TaskSpec",
    "Trace",
    "UseState",
    "WorkSpec",
    "WorkloadFile",
]

Phase = Literal["decode", "serve", "score", "train"]
UseState = Literal["ready", "drained", "lost"]

# ---------------------------------------------------------------- profile


class ModelShape(File, frozen=True, kw_only=True):
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
    experts_per_token: Count | None = None
    revision: str | None = None
    config_sha256: str | None = None


class Hardware(File, frozen=True, kw_only=True):
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


class Software(File, frozen=True, kw_only=True):
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
    flags: dict[str, str | int | float | bool] = {}  # noqa: RUF012  # msgspec copies it


class Method(File, frozen=True, kw_only=True):
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


class Provenance(File, frozen=True, kw_only=True):
    """Where the points come from; `points_sha256` pins the file."""

    kind: Literal["measured", "published", "simulated", "derived"]
    points_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
    source: str | None = None
    source_sha256: str | None = None
    source_url: str | None = None
    source_commit: str | None = None
    licence: str | None = None


class ProfileFile(File, frozen=True, kw_only=True):
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


class Point(File, frozen=True, kw_only=True):
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


class Spread(File, frozen=True, kw_only=True):
    """A measured quantity: its median, least and greatest value, and the 90th percentile of `n` readings.

    The unit is in the key that holds the spread.
    """

    typical: Positive
    low: Positive
    high: Positive
    p90: Positive
    n: Count


class SharedRate(File, frozen=True, kw_only=True):
    """Two processes time-slicing one GPU: the share of its own solo rate that each kept."""

    a: str
    b: str
    rate_a: Positive
    rate_b: Positive


class SwitchingFile(File, frozen=True, kw_only=True):
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


# ---------------------------------------------------------------- cluster


class GpuSpec(File, frozen=True, kw_only=True):
    """One GPU of a node. It is left out when it is excluded, drained, lost, held or in MIG mode.

    `held_by` names whoever else has it. `mig`: MIG mode is on, so that no process gets the whole GPU.
    `shared`: it is set aside for roles that may share a GPU, two at a time.
    """

    index: Annotated[int, Meta(ge=0, le=65535)]
    uuid: str | None = None
    memory_mib: Positive | None = None
    excluded: bool = False
    state: UseState = "ready"
    held_by: Name | None = None
    mig: bool = False
    shared: bool = False


class NodeSpec(File, frozen=True, kw_only=True):
    """One node: either `gpu_count` equal GPUs, or `gpus` one by one.

    `state` and `held_by` are of all its GPUs. Replicas larger than a node span only nodes of one
    `nvlink_domain`, as soon as any node names one; `rack` says which nodes are near each other.
    """

    id: Name
    gpu_class: Name
    gpu_count: Annotated[int, Meta(ge=1, le=1024)] | None = None
    gpus: tuple[GpuSpec, ...] = ()
    gpu_memory_mib: Positive | None = None
    address: Address | None = None
    cpu_cores: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    host_memory_mib: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    port_first: Annotated[int, Meta(ge=1024, le=65535)] = 24000
    port_last: Annotated[int, Meta(ge=1024, le=65535)] = 24999
    excluded: bool = False
    state: UseState = "ready"
    held_by: Name | None = None
    nvlink_domain: Name | None = None
    rack: Name | None = None


class ClusterFile(File, frozen=True, kw_only=True):
    """`cluster.yaml`: the nodes and the bandwidth inside and between them, and between racks.

    `price_per_gpu_hour` is by GPU class, in any one currency; `--budget` is in the same.
    """

    schema_version: Literal[1]
    name: Name = "cluster"
    nodes: tuple[NodeSpec, ...]
    intra_node_gib_per_s: Positive | None = None
    inter_node_gib_per_s: Positive | None = None
    inter_rack_gib_per_s: Positive | None = None
    price_per_gpu_hour: dict[str, NonNegative] = {}  # noqa: RUF012  # msgspec copies it
