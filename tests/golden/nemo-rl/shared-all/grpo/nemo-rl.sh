#!/bin/sh
# Task grpo, generation 1, for nemo-rl (7ea279ab).
# Run on node n0: nemo-rl.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3 4 5 6 7
# rollout: n0 GPU 0 1 2 3 4 5 6 7
# reference: n0 GPU 0 1 2 3 4 5 6 7
set -eu
export LIBRA_PLAN_TASK=grpo
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/grpo
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export here
if [ "$#" -eq 0 ]; then
    set -- python3 train.py
fi
exec sh "$here/ray/driver.sh" "$@" \
    cluster.num_nodes=1 \
    cluster.gpus_per_node=8 \
    policy.generation.colocated.enabled=true \
    policy.generation.vllm_cfg.tensor_parallel_size=1 \
    policy.generation.vllm_cfg.pipeline_parallel_size=1 \
    policy.dtensor_cfg.enabled=true \
    policy.megatron_cfg.enabled=false \
    policy.dtensor_cfg.tensor_parallel_size=1 \
    policy.dtensor_cfg.context_parallel_size=1 \
    'checkpointing.checkpoint_dir='"'"'/checkpoints/grpo'"'"''
