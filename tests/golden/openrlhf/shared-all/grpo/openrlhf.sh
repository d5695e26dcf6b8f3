#!/bin/sh
# Task grpo, generation 1, for openrlhf (0.10.1, 0.10.2, 0.11.2).
# Run on node n0: openrlhf.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3 4 5 6 7
# rollout: n0 GPU 0 1 2 3 4 5 6 7
# reference: n0 GPU 0 1 2 3 4 5 6 7
# No reward model is planned: give a remote one or an agent function, or one is started.
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
    --actor.num_nodes=1 \
    --actor.num_gpus_per_node=8 \
    --ref.num_nodes=1 \
    --ref.num_gpus_per_node=8 \
    --vllm.num_engines=8 \
    --vllm.tensor_parallel_size=1 \
    --ds.tensor_parallel_size=1 \
    --ds.ring_attn_size=1 \
    --train.colocate_all \
    --vllm.enable_sleep \
    --ds.enable_sleep \
    --ckpt.path=/checkpoints/grpo \
    --ckpt.load_enable
