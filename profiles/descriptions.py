"""What every key of users' files means, for the JSON Schemas that editors show.

By struct and key. What no schema can say (one key needs another) is checked by `cluster_checks`,
`workload_checks` and `role_checks`; the description of the key says so.
"""

from __future__ import annotations

__all__ = ["DESCRIPTIONS"]

_DP = "; data parallelism is the planner's to choose"
_SPREAD = "median, least, greatest and 90th percentile of the readings"
_STATE = "ready, drained or lost; only what is ready is planned on"
_HELD = "Whoever else has it; it is then left out."

_WORKLOAD: dict[str, dict[str, str]] = {
    "WorkloadFile": {
        "schema_version": "The version of this format.",
        "tasks": "The tasks that share the cluster; at least one, each with an id of its own.",
        "horizon_s": "Seconds within which a change of plan must pay for itself.",
        "quotas": "GPUs by team, for the policy fair-share; every `team` of a task must have one.",
        "aging_s": "Seconds of waiting that add a queued task's own weight once more; needed by `waited_s`.",
        "sharing": "Sets of tasks that may share pools, under the policy throughput; no others do.",
    },
    "SharingSpec": {
        "kind": "turns: two sync tasks take two pools in turn; engine: LoRA tasks share a rollout engine.",
        "tasks": "Ids of the tasks: two for turns, two or more for engine.",
    },
    "QuotaSpec": {
        "gpus": "GPUs the team may count on; 0 for a team that only borrows.",
        "gpus_of_class": "How many of them may be of a GPU class that is short, by class.",
    },
    "TaskSpec": {
        "id": "Name of the task, unlike any other task's.",
        "description": "What the task is, for people.",
        "weight": "How large its fair share of the GPUs is against others'; it does not put a task first.",
        "work_per_step": "The work of one step: samples and their lengths.",
        "coupling": "How the task's pools overlap.",
        "arrangements": "Ways to place roles that are allowed: all on one pool, each on its own, or mixed.",
        "roles": "The roles of the task, at least one of which needs GPUs.",
        "roles_fill_pools": "Whether roles that share a pool must all use the whole of it.",
        "lifecycle": "How the task is stopped and resumed.",
        "min_gpus": "Fewest GPUs the task runs on; at most `max_gpus`.",
        "max_gpus": "Most GPUs the task gets.",
        "tier": "Rank under the policy priority, 0 first.",
        "team": "The team whose quota counts under the policy fair-share; it needs an entry in `quotas`.",
        "deadline": "Steps that must be done in time; kept under every policy where it can be.",
        "min_steps_per_hour": "Fewest steps an hour; kept under every policy where it can be.",
        "latency_first": "Whether its step time is minimised before all else (evaluation).",
        "waited_s": "Seconds it has been queued; above 0 only in a workload with `aging_s`.",
    },
    "DeadlineSpec": {
        "steps": "Steps still to be done.",
        "within_s": "Seconds from now within which they must be done.",
    },
    "LifecycleSpec": {
        "stop_signal": "Signal that asks a process to save and end.",
        "grace_s": "Seconds it gets before it is killed.",
        "checkpoint_dir": "Folder of its checkpoints, handed to the launcher.",
        "checkpoint_sentinel": "File in that folder in which the framework keeps the step it saved last.",
        "reshardable": "Whether its checkpoints load on another number of training ranks.",
        "restart_s": "Seconds that moving the task costs; without it the measured switching costs count.",
    },
    "WorkSpec": {
        "samples": "Samples of one step: prompts times responses of each.",
        "prompt_tokens": "Length of a prompt; without `response_tokens`, of the whole sequence.",
        "response_tokens": "What one sample generates over all its turns; a task with a rollout needs it.",
        "turns": "Turns of one sample: after each but the last, a tool or environment answers.",
        "history_tokens": "Mean response lengths of the last steps, oldest first; needs `response_tokens`.",
    },
    "Fixed": {"kind": "Every length is the same.", "tokens": "The length, tokens."},
    "LogNormal": {
        "kind": "A long-tailed length.",
        "median_tokens": "Median, tokens; at most `max_tokens`.",
        "sigma": "Standard deviation of ln(length); 1 is a long tail.",
        "max_tokens": "Where lengths are cut, tokens.",
    },
    "Histogram": {
        "kind": "Lengths in bins.",
        "edges_tokens": "Edges of the bins, ascending, tokens: one more than `counts`.",
        "counts": "Samples in each bin; at least one above 0.",
    },
    "Trace": {
        "kind": "Observed lengths from a file.",
        "file": "Text or CSV file with one length a line, relative to the workload.",
    },
    "CouplingSpec": {
        "kind": "sync: phases take turns; async: rollout and training overlap; pipelined: by micro-groups.",
        "staleness_steps": "Steps that rollouts may be begun ahead: 1 or more for async (required), else 0.",
        "rollouts": "Of async: a stream that never drains, or batches, a step's samples generated as one.",
        "groups": "Micro-groups of one step: required for pipelined, and only there.",
    },
    "RoleSpec": {
        "id": "Name of the role, unlike any other of the task.",
        "kind": "What the role does; `env` needs CPU only, all others GPUs.",
        "profiles": "Profile ids, one per phase: rollout decode or serve (and score for its prefill), train "
        "roles train, scoring roles score. Required but for env. Found by name in this folder, the user's "
        "own, then among those shipped.",
        "layouts": f"Layouts the role may use{_DP}. Degrees must divide the model's heads and experts.",
        "micro_batch_tokens": "Tokens of a micro-batch per data-parallel rank; the longest sample must fit.",
        "max_concurrency": "Most sequences of one rollout engine at a time.",
        "verdict_tokens": "Length of a judge's verdicts: required when its profile is decode or serve, "
        "and only there.",
        "mixed_layouts": "Lets a rollout mix layouts by predicted length; not with `pinned_gpus`.",
        "offload": "State that lies in pinned host memory while the role works: `optimizer`, `parameters` or "
        "both. Assumed (--allow-prior) unless the profile's flag `offload` says that it was measured so.",
        "lora": "The adapter a rollout serves beside its base model; tasks with one may share an engine.",
        "can_sleep": "Whether its state may go to host memory while another role uses the GPUs.",
        "shares_gpu": "Whether it may sit on a `shared` GPU beside another role; only roles that work "
        "little: reward, judge, critic_score, reference.",
        "min_gpus": "Fewest GPUs of the role; at most `max_gpus`.",
        "max_gpus": "Most GPUs of the role.",
        "pinned_gpus": "GPUs it must use, as node:index or UUID; none that is excluded too.",
        "excluded_gpus": "GPUs it must not use, as node:index or UUID.",
        "cpu_cores_per_gpu": "CPU cores its processes take, per GPU.",
        "host_memory_mib_per_gpu": "Host memory its processes take, MiB per GPU; sleeping state is added.",
        "workers": "Workers of an env role (required there, and only there).",
        "cpu_cores_per_worker": "CPU cores of one worker (env: required).",
        "host_memory_mib_per_worker": "Host memory of one worker, MiB (env: required).",
        "tool_wait_s_per_turn": "Seconds one turn waits for its tool, on average (env only).",
        "tool_wait_sigma": "Sigma of that wait's log-normal law; not given: all wait alike (env only).",
        "command": "Program and arguments that start one process of the role.",
    },
    "LayoutSpec": {
        "tp": f"Tensor-parallel ranks{_DP}.",
        "pp": "Pipeline stages, at most the model's layers.",
        "cp": "Context-parallel ranks.",
        "ep": "Expert-parallel ranks, a divisor of the model's experts.",
    },
    "LoraSpec": {
        "rank": "Rank of the adapter beside each of the seven projections of every layer.",
    },
    "MixedLayoutsSpec": {
        "ranking_error": "Standard deviation of ln(predicted ÷ true length); 0 only where lengths are known.",
    },
}

_CLUSTER: dict[str, dict[str, str]] = {
    "ClusterFile": {
        "schema_version": "The version of this format.",
        "name": "Name of the cluster.",
        "nodes": "The nodes, at least one, each with an id of its own.",
        "intra_node_gib_per_s": "GPU to GPU inside a node, GiB/s of one GPU.",
        "inter_node_gib_per_s": "Between nodes, GiB/s of one GPU.",
        "inter_rack_gib_per_s": "Between racks, GiB/s of one GPU.",
        "price_per_gpu_hour": "Price of a GPU hour by GPU class of a node, in any one currency.",
    },
    "NodeSpec": {
        "id": "Name of the node: what launchers and `pinned_gpus` call it.",
        "gpu_class": "Class of its GPUs, as profiles name it; may not end with `.seat`.",
        "gpu_count": "Number of equal GPUs: either this or `gpus`.",
        "gpus": "The GPUs one by one: either this or `gpu_count`.",
        "gpu_memory_mib": "Memory of one GPU, MiB as nvidia-smi shows it; of a known class 50 % to 110 % of "
        "what it has. Without it, what profiles of the class were measured with.",
        "address": "Host name or IP address that the other nodes reach it by.",
        "cpu_cores": "CPU cores for the roles.",
        "host_memory_mib": "Host memory for the roles, MiB.",
        "port_first": "First port that roles may listen on; below `port_last`.",
        "port_last": "Last port that roles may listen on.",
        "excluded": "Whether no plan may use the node.",
        "state": f"State of all its GPUs: {_STATE}.",
        "held_by": _HELD,
        "nvlink_domain": "NVLink domain across nodes: replicas larger than a node stay inside one.",
        "rack": "Rack: nodes of one rack are near each other.",
    },
    "GpuSpec": {
        "index": "Index on the node, unlike any other's.",
        "uuid": "UUID as `nvidia-smi -L` prints it: proves that the index still means this card.",
        "memory_mib": "Memory, MiB, where it differs from the node's; the same bounds hold.",
        "excluded": "Whether no plan may use it.",
        "state": f"State: {_STATE}.",
        "held_by": _HELD,
        "mig": "Whether MIG mode is on: the GPU is then left out.",
        "shared": "Whether it is set aside for roles with `shares_gpu`, two at a time.",
    },
}

_PROFILE: dict[str, dict[str, str]] = {
    "ProfileFile": {
        "schema_version": "The version of this format.",
        "id": "Name of the profile, as workloads name it: that of its folder.",
        "phase": "What was measured: decode, serve, score or train.",
        "model": "The model's dimensions.",
        "hardware": "What it was measured on.",
        "software": "The stack that was measured.",
        "method": "How it was measured.",
        "provenance": "Where the points come from.",
        "points": "File of the points, in this folder.",
        "notes": "What a reader must know.",
    },
    "ModelShape": {
        "id": "Name of the model.",
        "params": "Parameters in all.",
        "layers": "Transformer layers.",
        "hidden": "Hidden size.",
        "heads": "Query heads.",
        "kv_heads": "Key-value heads.",
        "head_dim": "Dimension of one head.",
        "ffn": "Inner size of the feed-forward part (of one expert).",
        "vocab": "Size of the vocabulary.",
        "active_params": "Parameters that one token uses, of a mixture of experts.",
        "experts": "Experts of a layer.",
        "experts_per_token": "Experts that one token uses.",
        "revision": "Revision of the published model.",
        "config_sha256": "SHA-256 of its config.json.",
    },
    "Hardware": {
        "gpu_class": "GPU class: must be the cluster's word for it.",
        "nvml_name": "Name that the driver gives the GPU; `--local` finds the class by it.",
        "memory_mib": "Memory of one GPU, MiB as the driver shows it; of a known class 50 % to 110 % of "
        "what it has.",
        "gpus_per_node": "GPUs of the node.",
        "power_limit_w": "Power limit, W.",
        "mig": "Whether it was a part of a GPU (MIG).",
        "intra_node_gib_per_s": "GPU to GPU inside the node, GiB/s of one GPU.",
        "inter_node_gib_per_s": "Between nodes, GiB/s of one GPU.",
        "host_link_gib_per_s": "GPU to host memory, GiB/s.",
        "driver": "Version of the driver.",
        "cuda": "Version of CUDA.",
        "nccl": "Version of NCCL.",
        "cpu": "Model of the CPU.",
    },
    "Software": {
        "framework": "Engine or trainer.",
        "version": "Its version; `unstated` when nobody knows it any more.",
        "precision": "Precision, as bf16, fp8 or fp32-master/bf16.",
        "recompute": "How activations are recomputed in training.",
        "mode": "Mode of running, as cudagraph, eager or ddp.",
        "zero_stage": "ZeRO stage, 0 to 3: what data-parallel ranks share out.",
        "lora_rank": "Rank of the adapters; without it all weights are trained.",
        "kv_precision": "Precision of the KV cache, where it differs.",
        "torch": "Version of PyTorch.",
        "transformers": "Version of Transformers.",
        "commit": "Commit of the measuring program.",
        "image": "Container image.",
        "flags": "Settings of the engine by name.",
    },
    "Method": {
        "date": "When it was measured.",
        "seed": "Seed of random weights and inputs.",
        "warmup": "Steps before the first repeat.",
        "repeats": "Repeats of a point.",
        "clock": "How time was taken.",
        "exclusive": "Whether nothing else ran on the GPUs.",
        "tokens_counted": "Which tokens `tokens_per_s` counts.",
        "throughput_basis": "Whether `tokens_per_s` is of all GPUs or of one.",
        "tpot_definition": "How the time per output token is defined (serve).",
    },
    "Provenance": {
        "kind": "measured, published, simulated or derived.",
        "points_sha256": "SHA-256 of the points file, in 64 hexadecimal digits; must match.",
        "source": "File that was imported.",
        "source_sha256": "SHA-256 of that file.",
        "source_url": "Where the data are published.",
        "source_commit": "Commit they were taken from.",
        "licence": "Licence of the data.",
    },
    "SwitchingFile": {
        "schema_version": "The version of this format.",
        "gpu_class": "GPU class it was measured on.",
        "start_s": f"Seconds from the launcher's start to ranks ready to work: {_SPREAD}.",
        "save_gib_per_s": f"Saving a checkpoint, GiB/s: {_SPREAD}.",
        "load_gib_per_s": f"Loading a checkpoint, GiB/s: {_SPREAD}.",
        "p2p_gib_per_s": f"GPU to GPU in one node, GiB/s: {_SPREAD}.",
        "pinned_host_gib_per_s": f"GPU to pinned host memory, GiB/s: {_SPREAD}.",
        "pageable_host_gib_per_s": f"GPU to pageable host memory, GiB/s: {_SPREAD}.",
        "broadcast_gib_per_s": f"Broadcast of weights, GiB/s: {_SPREAD}.",
        "all_reduce_gib_per_s": f"All-reduce of gradients, GiB/s: {_SPREAD}.",
        "shared_gpu": "What pairs of processes on one GPU left each other.",
        "kind": "measured, published, simulated or derived.",
        "source": "File it was made from.",
        "source_sha256": "SHA-256 of that file.",
        "notes": "What a reader must know.",
    },
    "Spread": {
        "typical": "Median.",
        "low": "Least reading.",
        "high": "Greatest reading.",
        "p90": "90th percentile.",
        "n": "Number of readings.",
    },
    "SharedRate": {
        "a": "What the first process did.",
        "b": "What the second process did.",
        "rate_a": "Share of its own solo rate that the first kept.",
        "rate_b": "Share of its own solo rate that the second kept.",
    },
}

DESCRIPTIONS: dict[str, dict[str, str]] = {**_WORKLOAD, **_CLUSTER, **_PROFILE}
"""Descriptions by the name of a struct, then of its key."""
