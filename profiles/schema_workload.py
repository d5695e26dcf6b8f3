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
    Sigma,
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

    tokens: Count  #: The length, tokens.


class LogNormal(File, frozen=True, kw_only=True, tag="lognormal", tag_field="kind"):
    """A long-tailed length: log-normal with this median and sigma, cut at `max_tokens`."""

    median_tokens: Positive  #: Median, tokens; at most `max_tokens`.
    sigma: NonNegative  #: Standard deviation of ln(length); 1 is a long tail.
    max_tokens: Count  #: Where lengths are cut, tokens.


class Histogram(File, frozen=True, kw_only=True, tag="histogram", tag_field="kind"):
    """Lengths in bins: `edges_tokens` has one more entry than `counts`."""

    edges_tokens: tuple[Whole, ...]  #: Edges of the bins, ascending, tokens: one more than `counts`.
    counts: tuple[Mass, ...]  #: Samples in each bin; at least one above 0.


class Trace(File, frozen=True, kw_only=True, tag="trace", tag_field="kind"):
    """Observed lengths: a text or CSV file with one length a line, relative to the workload."""

    file: str  #: Text or CSV file with one length a line, relative to the workload.


Distribution = Fixed | LogNormal | Histogram | Trace


class WorkSpec(File, frozen=True, kw_only=True):
    """The work of one step of a task.

    A task without `response_tokens` (reward-model training) works on `prompt_tokens` alone. A plan for
    later steps is forecast from `history_tokens`.
    """

    samples: Large  #: Samples of one step: prompts times responses of each.
    prompt_tokens: Distribution  #: Length of a prompt; without `response_tokens`, of the whole sequence.
    #: What one sample generates over all its turns; a task with a rollout needs it.
    response_tokens: Distribution | None = None
    turns: Large = 1  #: Turns of one sample: after each but the last, a tool or environment answers.
    #: Mean response lengths of the last steps, oldest first; needs `response_tokens`.
    history_tokens: tuple[Positive, ...] = ()


class CouplingSpec(File, frozen=True, kw_only=True):
    """How the task's pools overlap; `staleness_steps` ≥ 1 only with async.

    `rollouts` of an async task: a `stream` that never drains (AReaL; verl's fully asynchronous trainer), or
    `batches`, a step's samples generated as one (slime's `train_async`, verl's `one_step_off_policy`).
    """

    #: sync: phases take turns; async: rollout and training overlap; pipelined: by micro-groups.
    kind: Literal["sync", "async", "pipelined"] = "sync"
    #: Steps that rollouts may be begun ahead: 1 or more for async (required), else 0.
    staleness_steps: Steps = 0
    #: Of async: a stream that never drains, or batches, a step's samples generated as one.
    rollouts: Literal["stream", "batches"] = "stream"
    groups: Count | None = None  #: Micro-groups of one step: required for pipelined, and only there.


class LayoutSpec(File, frozen=True, kw_only=True):
    """A layout the role may use; data parallelism is the planner's to choose."""

    tp: Count = 1  #: Tensor-parallel ranks; data parallelism is the planner's to choose.
    pp: Count = 1  #: Pipeline stages, at most the model's layers.
    cp: Count = 1  #: Context-parallel ranks.
    ep: Count = 1  #: Expert-parallel ranks, a divisor of the model's experts.


class MixedLayoutsSpec(File, frozen=True, kw_only=True):
    """Replicas of several layouts, each serving trajectories of a range of predicted lengths."""

    #: Standard deviation of ln(predicted ÷ true length); 0 only where lengths are known.
    ranking_error: NonNegative


class LoraSpec(File, frozen=True, kw_only=True):
    """The task trains an adapter of this rank beside every projection; the rollout holds it too."""

    rank: Count  #: Rank of the adapter beside each of the seven projections of every layer.


class RoleSpec(File, frozen=True, kw_only=True):
    """A role of a task. GPU roles name their profiles; `env` states its CPU need and tool waits.

    A judge that writes its verdicts (profile of phase decode or serve) reads prompt and response of each
    sample. Training roles may offload the optimizer's state, the parameters or both, scoring roles the
    parameters.
    """

    id: Name  #: Name of the role, unlike any other of the task.
    kind: RoleKind  #: What the role does; `env` needs CPU only, all others GPUs.
    #: Profile ids, one per phase: rollout decode or serve (and score for its prefill), train roles train,
    #: scoring roles score. Required but for env. Found by name in this folder, the user's own, then among
    #: those shipped.
    profiles: tuple[Name, ...] = ()
    #: Layouts the role may use; data parallelism is the planner's to choose. Degrees must divide the model's
    #: heads and experts.
    layouts: tuple[LayoutSpec, ...] = ()
    #: Tokens of a micro-batch per data-parallel rank; the longest sample must fit.
    micro_batch_tokens: Count | None = None
    max_concurrency: Count | None = None  #: Most sequences of one rollout engine at a time.
    #: Length of a judge's verdicts: required when its profile is decode or serve, and only there.
    verdict_tokens: Distribution | None = None
    #: Lets a rollout mix layouts by predicted length; not with `pinned_gpus`.
    mixed_layouts: MixedLayoutsSpec | None = None
    #: State that lies in pinned host memory while the role works: `optimizer`, `parameters` or both. Assumed
    #: (--allow-prior) unless the profile's flag `offload` says that it was measured so.
    offload: tuple[Literal["optimizer", "parameters"], ...] = ()
    #: The adapter a rollout serves beside its base model; tasks with one may share an engine.
    lora: LoraSpec | None = None
    can_sleep: bool = True  #: Whether its state may go to host memory while another role uses the GPUs.
    #: Whether it may sit on a `shared` GPU beside another role; only roles that work little: reward, judge,
    #: critic_score, reference.
    shares_gpu: bool = False
    min_gpus: Count = 1  #: Fewest GPUs of the role; at most `max_gpus`.
    max_gpus: Count | None = None  #: Most GPUs of the role.
    pinned_gpus: tuple[str, ...] = ()  #: GPUs it must use, as node:index or UUID; none that is excluded too.
    excluded_gpus: tuple[str, ...] = ()  #: GPUs it must not use, as node:index or UUID.
    cpu_cores_per_gpu: Cores = 0.0  #: CPU cores its processes take, per GPU.
    #: Host memory its processes take, MiB per GPU; sleeping state is added.
    host_memory_mib_per_gpu: Mib = 0.0
    workers: Large | None = None  #: Workers of an env role (required there, and only there).
    cpu_cores_per_worker: Cores | None = None  #: CPU cores of one worker (env: required).
    host_memory_mib_per_worker: Mib | None = None  #: Host memory of one worker, MiB (env: required).
    #: Seconds one turn waits for its tool, on average (env only).
    tool_wait_s_per_turn: Seconds | None = None
    #: Sigma of that wait's log-normal law; not given: all wait alike (env only).
    tool_wait_sigma: Sigma | None = None
    command: tuple[str, ...] = ()  #: Program and arguments that start one process of the role.


class LifecycleSpec(File, frozen=True, kw_only=True):
    """How the task is stopped and resumed; what the manifest hands to launchers."""

    #: Signal that asks a process to save and end.
    stop_signal: Literal["SIGTERM", "SIGINT", "SIGUSR1"] = "SIGTERM"
    grace_s: Positive = 600.0  #: Seconds it gets before it is killed.
    checkpoint_dir: str | None = None  #: Folder of its checkpoints, handed to the launcher.
    #: File in that folder in which the framework keeps the step it saved last.
    checkpoint_sentinel: str | None = None
    reshardable: bool = False  #: Whether its checkpoints load on another number of training ranks.
    #: Seconds that moving the task costs; without it the measured switching costs count.
    restart_s: Seconds | None = None


class DeadlineSpec(File, frozen=True, kw_only=True):
    """So many steps within so many seconds from now."""

    steps: Positive  #: Steps still to be done.
    within_s: Positive  #: Seconds from now within which they must be done.


class TaskSpec(File, frozen=True, kw_only=True):
    """A post-training job that wants GPUs."""

    id: Name  #: Name of the task, unlike any other task's.
    description: str = ""  #: What the task is, for people.
    #: How large its fair share of the GPUs is against others'; it does not put a task first.
    weight: Weight = 1.0
    work_per_step: WorkSpec  #: The work of one step: samples and their lengths.
    coupling: CouplingSpec = CouplingSpec()  #: How the task's pools overlap.
    #: Ways to place roles that are allowed: all on one pool, each on its own, or mixed.
    arrangements: tuple[Literal["colocated", "separate", "hybrid"], ...] = ("colocated", "separate", "hybrid")
    roles: tuple[RoleSpec, ...]  #: The roles of the task, at least one of which needs GPUs.
    roles_fill_pools: bool = False  #: Whether roles that share a pool must all use the whole of it.
    lifecycle: LifecycleSpec = LifecycleSpec()  #: How the task is stopped and resumed.
    min_gpus: Whole = 0  #: Fewest GPUs the task runs on; at most `max_gpus`.
    max_gpus: Count | None = None  #: Most GPUs the task gets.
    tier: Whole = 0  #: Rank under the policy priority, 0 first.
    #: The team whose quota counts under the policy fair-share; it needs an entry in `quotas`.
    team: Name | None = None
    #: Steps that must be done in time; kept under every policy where it can be.
    deadline: DeadlineSpec | None = None
    #: Fewest steps an hour; kept under every policy where it can be.
    min_steps_per_hour: Positive | None = None
    latency_first: bool = False  #: Whether its step time is minimised before all else (evaluation).
    waited_s: Seconds = 0.0  #: Seconds it has been queued; above 0 only in a workload with `aging_s`.


class QuotaSpec(File, frozen=True, kw_only=True):
    """The GPUs a team may count on, and how many of them may be of a class that is short."""

    gpus: Whole  #: GPUs the team may count on; 0 for a team that only borrows.
    #: How many of them may be of a GPU class that is short, by class.
    gpus_of_class: dict[str, Whole] = {}  # noqa: RUF012  # msgspec copies it


class SharingSpec(File, frozen=True, kw_only=True):
    """Tasks that may run jointly where that is worth more than running them apart.

    `turns`: two sync tasks take the same two pools in turn, one trains while the other rolls out.
    """

    #: turns: two sync tasks take two pools in turn. (engine was removed, and is refused.)
    kind: Literal["turns", "engine"]
    tasks: tuple[Name, ...]  #: Ids of the two tasks.


class WorkloadFile(File, frozen=True, kw_only=True):
    """`workload.yaml`: the tasks that share a cluster."""

    schema_version: Literal[1]  #: The version of this format.
    #: The tasks that share the cluster; at least one, each with an id of its own.
    tasks: tuple[TaskSpec, ...]
    horizon_s: Positive = 3600.0  #: Seconds within which a change of plan must pay for itself.
    #: GPUs by team, for the policy fair-share; every `team` of a task must have one.
    quotas: dict[str, QuotaSpec] = {}  # noqa: RUF012  # msgspec copies it
    #: Seconds of waiting that add a queued task's own weight once more; needed by `waited_s`.
    aging_s: Positive | None = None
    #: Sets of tasks that may share pools, under the policy throughput; no others do.
    sharing: tuple[SharingSpec, ...] = ()
