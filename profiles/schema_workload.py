"""The schema of `workload.yaml`: tasks, their roles, and the work of one step."""

from __future__ import annotations

from typing import Literal

from libra_plan.profiles.schema_base import (
    Cores,
    Count,
    File,
    Large,
    Mass,
    Mib,
    Name,
    NonNegative,
    Positive,
    Seconds,
    Spread,
    Steps,
    Weight,
    Whole,
)

__all__ = [
    "CouplingSpec",
    "DeadlineSpec",
    "Distribution",
    "Fixed",
    "Histogram",
    "LayoutSpec",
    "LifecycleSpec",
    "LogNormal",
    "LoraSpec",
    "MixedLayoutsSpec",
    "QuotaSpec",
    "RoleKind",
    "RoleSpec",
    "SharingSpec",
    "TaskSpec",
    "Trace",
    "WorkSpec",
    "WorkloadFile",
]

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


class Fixed(File, frozen=True, kw_only=True, tag="fixed", tag_field="kind"):
    """Every length is the same."""

    tokens: Count


class LogNormal(File, frozen=True, kw_only=True, tag="lognormal", tag_field="kind"):
    """A long-tailed length: log-normal with this median and sigma, cut at `max_tokens`."""

    median_tokens: Positive
    sigma: NonNegative
    max_tokens: Count


class Histogram(File, frozen=True, kw_only=True, tag="histogram", tag_field="kind"):
    """Lengths in bins: `edges_tokens` has one more entry than `counts`."""

    edges_tokens: tuple[Whole, ...]
    counts: tuple[Mass, ...]


class Trace(File, frozen=True, kw_only=True, tag="trace", tag_field="kind"):
    """Observed lengths: a text or CSV file with one length a line, relative to the workload."""

    file: str


Distribution = Fixed | LogNormal | Histogram | Trace


class WorkSpec(File, frozen=True, kw_only=True):
    """The work of one step of a task.

    `response_tokens` is what one sample generates over all of its `turns` together; a task without
    it (reward-model training) works on `prompt_tokens` alone. `history_tokens` are the mean
    response lengths of the last steps, oldest first: what a plan for later steps is forecast from.
    """

    samples: Large
    prompt_tokens: Distribution
    response_tokens: Distribution | None = None
    turns: Large = 1
    history_tokens: tuple[Positive, ...] = ()


class CouplingSpec(File, frozen=True, kw_only=True):
    """How the task's pools overlap; `staleness_steps` ≥ 1 only with async.

    `rollouts` of an async task: a `stream` that never drains (AReaL; verl's fully asynchronous trainer), or
    `batches`, a step's samples generated as one (slime's `train_async`, verl's `one_step_off_policy`).
    """

    kind: Literal["sync", "async", "pipelined"] = "sync"
    staleness_steps: Steps = 0
    rollouts: Literal["stream", "batches"] = "stream"
    groups: Count | None = None


class LayoutSpec(File, frozen=True, kw_only=True):
    """A layout the role may use; data parallelism is the planner's to choose."""

    tp: Count = 1
    pp: Count = 1
    cp: Count = 1
    ep: Count = 1


class MixedLayoutsSpec(File, frozen=True, kw_only=True):
    """Replicas of several layouts, each serving trajectories of a range of predicted lengths.

    `ranking_error`: standard deviation of ln(predicted ÷ true length) of what ranks the trajectories
    before they are generated; 0 only where lengths are known.
    """

    ranking_error: NonNegative


class LoraSpec(File, frozen=True, kw_only=True):
    """The task trains an adapter of this rank beside every projection; the rollout holds it too."""

    rank: Count


class RoleSpec(File, frozen=True, kw_only=True):
    """A role of a task. GPU roles name their profiles; `env` states its CPU need and tool waits.

    `profiles`: one profile id per phase the role goes through (rollout: decode or serve, and
    optionally score for its prefill; train roles: train; scoring roles: score). A judge that writes
    its verdicts (profile of phase decode or serve) states their length, `verdict_tokens`; it reads
    prompt and response of each sample. A rollout with `mixed_layouts` may mix its layouts. `min_gpus`,
    `max_gpus`, `pinned_gpus` and `excluded_gpus` ("node:index" or UUID) bound the placement.
    Host memory is what the processes take; the planner adds the state it puts to sleep there.
    `offload`: state that lies in pinned host memory while the role works, too: of training roles the
    optimizer's, the parameters or both, of scoring roles the parameters. A rollout with `lora` serves an
    adapter beside the weights of its base model.
    `shares_gpu`: a role that works little may sit on one of the cluster's `shared` GPUs, beside a role
    of this or another task that may, too.
    """

    id: Name
    kind: RoleKind
    profiles: tuple[Name, ...] = ()
    layouts: tuple[LayoutSpec, ...] = ()
    micro_batch_tokens: Count | None = None
    max_concurrency: Count | None = None
    verdict_tokens: Distribution | None = None
    mixed_layouts: MixedLayoutsSpec | None = None
    offload: tuple[Literal["optimizer", "parameters"], ...] = ()
    lora: LoraSpec | None = None
    can_sleep: bool = True
    shares_gpu: bool = False
    min_gpus: Count = 1
    max_gpus: Count | None = None
    pinned_gpus: tuple[str, ...] = ()
    excluded_gpus: tuple[str, ...] = ()
    cpu_cores_per_gpu: Cores = 0.0
    host_memory_mib_per_gpu: Mib = 0.0
    workers: Large | None = None
    cpu_cores_per_worker: Cores | None = None
    host_memory_mib_per_worker: Mib | None = None
    tool_wait_s_per_turn: Seconds | None = None
    tool_wait_sigma: Spread | None = None
    command: tuple[str, ...] = ()


class LifecycleSpec(File, frozen=True, kw_only=True):
    """How the task is stopped and resumed; what the manifest hands to launchers."""

    stop_signal: Literal["SIGTERM", "SIGINT", "SIGUSR1"] = "SIGTERM"
    grace_s: Positive = 600.0
    checkpoint_dir: str | None = None
    checkpoint_sentinel: str | None = None
    reshardable: bool = False
    restart_s: Seconds | None = None


class DeadlineSpec(File, frozen=True, kw_only=True):
    """So many steps within so many seconds from now."""

    steps: Positive
    within_s: Positive


class TaskSpec(File, frozen=True, kw_only=True):
    """A post-training job that wants GPUs.

    `tier` (0 first) counts under the policy `priority`, `team` under `fair-share`. `deadline` and
    `min_steps_per_hour` are kept under every policy where they can be. `latency_first` (evaluation):
    its step time is minimised before the policy looks at anything. `waited_s`: how long it has been
    queued; with the workload's `aging_s` that adds to its weight until it runs.
    """

    id: Name
    description: str = ""
    weight: Weight = 1.0
    work_per_step: WorkSpec
    coupling: CouplingSpec = CouplingSpec()
    arrangements: tuple[Literal["colocated", "separate", "hybrid"], ...] = ("colocated", "separate", "hybrid")
    roles: tuple[RoleSpec, ...]
    roles_fill_pools: bool = False
    lifecycle: LifecycleSpec = LifecycleSpec()
    min_gpus: Whole = 0
    max_gpus: Count | None = None
    tier: Whole = 0
    team: Name | None = None
    deadline: DeadlineSpec | None = None
    min_steps_per_hour: Positive | None = None
    latency_first: bool = False
    waited_s: Seconds = 0.0


class QuotaSpec(File, frozen=True, kw_only=True):
    """The GPUs a team may count on, and how many of them may be of a class that is short."""

    gpus: Whole
    gpus_of_class: dict[str, Whole] = {}  # noqa: RUF012  # msgspec copies it


class SharingSpec(File, frozen=True, kw_only=True):
    """Tasks that may run jointly where that is worth more than running them apart.

    `turns`: two sync tasks take the same two pools in turn, one trains while the other rolls out.
    `engine`: LoRA tasks on one base model leave their rollouts to one engine with all their adapters.
    """

    kind: Literal["turns", "engine"]
    tasks: tuple[Name, ...]


class WorkloadFile(File, frozen=True, kw_only=True):
    """`workload.yaml`: the tasks that share a cluster.

    `quotas` are by team. `sharing` names tasks that may share pools; no others do. A queued task's
    weight grows by its own size every `aging_s` it waits.
    """

    schema_version: Literal[1]
    tasks: tuple[TaskSpec, ...]
    horizon_s: Positive = 3600.0
    quotas: dict[str, QuotaSpec] = {}  # noqa: RUF012  # msgspec copies it
    aging_s: Positive | None = None
    sharing: tuple[SharingSpec, ...] = ()
