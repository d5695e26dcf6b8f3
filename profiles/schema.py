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
    "MeasuredSpread",
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

    id: str  #: Name of the model.
    params: Count  #: Parameters in all.
    layers: Count  #: Transformer layers.
    hidden: Count  #: Hidden size.
    heads: Count  #: Query heads.
    kv_heads: Count  #: Key-value heads.
    head_dim: Count  #: Dimension of one head.
    ffn: Count  #: Inner size of the feed-forward part (of one expert).
    vocab: Count  #: Size of the vocabulary.
    active_params: Count | None = None  #: Parameters that one token uses, of a mixture of experts.
    experts: Count | None = None  #: Experts of a layer.
    experts_per_token: Count | None = None  #: Experts that one token uses.
    revision: str | None = None  #: Revision of the published model.
    config_sha256: str | None = None  #: SHA-256 of its config.json.


class Hardware(File, frozen=True, kw_only=True):
    """What the points were measured on. `gpu_class` is the key that must match the cluster's."""

    gpu_class: Name  #: GPU class: must be the cluster's word for it.
    nvml_name: str | None = None  #: Name that the driver gives the GPU; `--local` finds the class by it.
    #: Memory of one GPU, MiB as the driver shows it; of a known class 50 % to 110 % of what it has.
    memory_mib: Positive
    gpus_per_node: Count | None = None  #: GPUs of the node.
    power_limit_w: Positive | None = None  #: Power limit, W.
    mig: bool = False  #: Whether it was a part of a GPU (MIG).
    intra_node_gib_per_s: Positive | None = None  #: GPU to GPU inside the node, GiB/s of one GPU.
    inter_node_gib_per_s: Positive | None = None  #: Between nodes, GiB/s of one GPU.
    host_link_gib_per_s: Positive | None = None  #: GPU to host memory, GiB/s.
    driver: str | None = None  #: Version of the driver.
    cuda: str | None = None  #: Version of CUDA.
    nccl: str | None = None  #: Version of NCCL.
    cpu: str | None = None  #: Model of the CPU.


class Software(File, frozen=True, kw_only=True):
    """The stack: two profiles with different software are different profiles."""

    framework: str  #: Engine or trainer.
    version: str  #: Its version; `unstated` when nobody knows it any more.
    precision: str  #: Precision, as bf16, fp8 or fp32-master/bf16.
    recompute: str | None = None  #: How activations are recomputed in training.
    mode: str | None = None  #: Mode of running, as cudagraph, eager or ddp.
    #: ZeRO stage, 0 to 3: what data-parallel ranks share out.
    zero_stage: Annotated[int, Meta(ge=0, le=3)] = 0
    lora_rank: Count | None = None  #: Rank of the adapters; without it all weights are trained.
    kv_precision: str | None = None  #: Precision of the KV cache, where it differs.
    torch: str | None = None  #: Version of PyTorch.
    transformers: str | None = None  #: Version of Transformers.
    commit: str | None = None  #: Commit of the measuring program.
    image: str | None = None  #: Container image.
    #: Settings of the engine by name.
    flags: dict[str, str | int | float | bool] = {}  # noqa: RUF012  # msgspec copies it


class Method(File, frozen=True, kw_only=True):
    """How it was measured."""

    date: str | None = None  #: When it was measured.
    seed: int | None = None  #: Seed of random weights and inputs.
    warmup: Whole | None = None  #: Steps before the first repeat.
    repeats: Count | None = None  #: Repeats of a point.
    clock: str | None = None  #: How time was taken.
    exclusive: bool | None = None  #: Whether nothing else ran on the GPUs.
    tokens_counted: Literal["input", "output", "input+output"]  #: Which tokens `tokens_per_s` counts.
    throughput_basis: Literal["total", "per_gpu"]  #: Whether `tokens_per_s` is of all GPUs or of one.
    tpot_definition: str | None = None  #: How the time per output token is defined (serve).


class Provenance(File, frozen=True, kw_only=True):
    """Where the points come from; `points_sha256` pins the file."""

    #: measured, published, simulated or derived.
    kind: Literal["measured", "published", "simulated", "derived"]
    #: SHA-256 of the points file, in 64 hexadecimal digits; must match.
    points_sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]
    source: str | None = None  #: File that was imported.
    source_sha256: str | None = None  #: SHA-256 of that file.
    source_url: str | None = None  #: Where the data are published.
    source_commit: str | None = None  #: Commit they were taken from.
    licence: str | None = None  #: Licence of the data.


class ProfileFile(File, frozen=True, kw_only=True):
    """`profile.yaml`: one model, one phase, one stack on one GPU class; the points lie beside it."""

    schema_version: Literal[1]  #: The version of this format.
    id: Name  #: Name of the profile, as workloads name it: that of its folder.
    phase: Phase  #: What was measured: decode, serve, score or train.
    model: ModelShape  #: The model's dimensions.
    hardware: Hardware  #: What it was measured on.
    software: Software  #: The stack that was measured.
    method: Method  #: How it was measured.
    provenance: Provenance  #: Where the points come from.
    points: str = "points.csv"  #: File of the points, in this folder.
    notes: str = ""  #: What a reader must know.


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


class MeasuredSpread(File, frozen=True, kw_only=True):
    """A measured quantity; the unit is in the key that holds it."""

    typical: Positive  #: Median.
    low: Positive  #: Least reading.
    high: Positive  #: Greatest reading.
    p90: Positive  #: 90th percentile.
    n: Count  #: Number of readings.


class SharedRate(File, frozen=True, kw_only=True):
    """Two processes time-slicing one GPU: the share of its own solo rate that each kept."""

    a: str  #: What the first process did.
    b: str  #: What the second process did.
    rate_a: Positive  #: Share of its own solo rate that the first kept.
    rate_b: Positive  #: Share of its own solo rate that the second kept.


class SwitchingFile(File, frozen=True, kw_only=True):
    """`switching.yaml`: what it costs to start, stop and move a role on one GPU class.

    A key that is absent was not measured.
    """

    schema_version: Literal[1]  #: The version of this format.
    gpu_class: Name  #: GPU class it was measured on.
    #: Seconds from the launcher's start to ranks ready to work.
    start_s: MeasuredSpread
    #: Saving a checkpoint, GiB/s.
    save_gib_per_s: MeasuredSpread
    #: Loading a checkpoint, GiB/s.
    load_gib_per_s: MeasuredSpread
    #: GPU to GPU in one node, GiB/s.
    p2p_gib_per_s: MeasuredSpread | None = None
    #: GPU to pinned host memory, GiB/s.
    pinned_host_gib_per_s: MeasuredSpread | None = None
    #: GPU to pageable host memory, GiB/s.
    pageable_host_gib_per_s: MeasuredSpread | None = None
    #: Broadcast of weights, GiB/s.
    broadcast_gib_per_s: MeasuredSpread | None = None
    #: All-reduce of gradients, GiB/s.
    all_reduce_gib_per_s: MeasuredSpread | None = None
    shared_gpu: tuple[SharedRate, ...] = ()  #: What pairs of processes on one GPU left each other.
    #: measured, published, simulated or derived.
    kind: Literal["measured", "published", "simulated", "derived"]
    source: str | None = None  #: File it was made from.
    source_sha256: str | None = None  #: SHA-256 of that file.
    notes: str = ""  #: What a reader must know.


# ---------------------------------------------------------------- cluster


class GpuSpec(File, frozen=True, kw_only=True):
    """One GPU of a node. It is left out when it is excluded, drained, lost, held or in MIG mode."""

    index: Annotated[int, Meta(ge=0, le=65535)]  #: Index on the node, unlike any other's.
    #: UUID as `nvidia-smi -L` prints it: proves that the index still means this card.
    uuid: str | None = None
    #: Memory, MiB, where it differs from the node's; the same bounds hold.
    memory_mib: Positive | None = None
    excluded: bool = False  #: Whether no plan may use it.
    state: UseState = "ready"  #: State: ready, drained or lost; only what is ready is planned on.
    held_by: Name | None = None  #: Whoever else has it; it is then left out.
    mig: bool = False  #: Whether MIG mode is on: the GPU is then left out.
    shared: bool = False  #: Whether it is set aside for roles with `shares_gpu`, two at a time.


class NodeSpec(File, frozen=True, kw_only=True):
    """One node: either `gpu_count` equal GPUs, or `gpus` one by one.

    Replicas larger than a node span only nodes of one `nvlink_domain`, as soon as any node names one.
    """

    id: Name  #: Name of the node: what launchers and `pinned_gpus` call it.
    gpu_class: Name  #: Class of its GPUs, as profiles name it; may not end with `.seat`.
    #: Number of equal GPUs: either this or `gpus`.
    gpu_count: Annotated[int, Meta(ge=1, le=1024)] | None = None
    gpus: tuple[GpuSpec, ...] = ()  #: The GPUs one by one: either this or `gpu_count`.
    #: Memory of one GPU, MiB as nvidia-smi shows it; of a known class 50 % to 110 % of what it has. Without
    #: it, what profiles of the class were measured with.
    gpu_memory_mib: Positive | None = None
    address: Address | None = None  #: Host name or IP address that the other nodes reach it by.
    cpu_cores: Annotated[float, Meta(gt=0, le=1e6)] | None = None  #: CPU cores for the roles.
    host_memory_mib: Annotated[float, Meta(gt=0, le=1e9)] | None = None  #: Host memory for the roles, MiB.
    #: First port that roles may listen on; below `port_last`.
    port_first: Annotated[int, Meta(ge=1024, le=65535)] = 24000
    port_last: Annotated[int, Meta(ge=1024, le=65535)] = 24999  #: Last port that roles may listen on.
    excluded: bool = False  #: Whether no plan may use the node.
    #: State of all its GPUs: ready, drained or lost; only what is ready is planned on.
    state: UseState = "ready"
    held_by: Name | None = None  #: Whoever else has it; it is then left out.
    #: NVLink domain across nodes: replicas larger than a node stay inside one.
    nvlink_domain: Name | None = None
    rack: Name | None = None  #: Rack: nodes of one rack are near each other.


class ClusterFile(File, frozen=True, kw_only=True):
    """`cluster.yaml`: the nodes and the bandwidth inside and between them, and between racks."""

    schema_version: Literal[1]  #: The version of this format.
    name: Name = "cluster"  #: Name of the cluster.
    nodes: tuple[NodeSpec, ...]  #: The nodes, at least one, each with an id of its own.
    intra_node_gib_per_s: Positive | None = None  #: GPU to GPU inside a node, GiB/s of one GPU.
    inter_node_gib_per_s: Positive | None = None  #: Between nodes, GiB/s of one GPU.
    inter_rack_gib_per_s: Positive | None = None  #: Between racks, GiB/s of one GPU.
    #: Price of a GPU hour by GPU class of a node, in any one currency.
    price_per_gpu_hour: dict[str, NonNegative] = {}  # noqa: RUF012  # msgspec copies it
