#!/bin/sh
# Task wide, generation 1, for openrlhf (0.10.1, 0.10.2, 0.11.2).
# Run on node n0: openrlhf.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3 4 5 6 7, n1 GPU 0 1 2 3 4 5 6 7
# rollout: n2 GPU 0 1 2 3 4 5 6 7
# No reward model is planned: give a remote one or an agent function, or one is started.
# No reference model is planned: the KL coefficient is 0, or one is started.
set -eu
export LIBRA_PLAN_TASK=wide
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/wide
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export here
if [ "$#" -eq 0 ]; then
    set -- python3 train.py
fi
exec sh "$here/ray/driver.sh" "$@" \
    --actor.num_nodes=2 \
    --actor.num_gpus_per_node=8 \
    --vllm.num_engines=4 \
    --vllm.tensor_parallel_size=2 \
    --ds.tensor_parallel_size=1 \
    --ds.ring_attn_size=1 \
    --train.async_enable \
    --train.async_queue_size=2 \
    --algo.kl.init_coef=0 \
    --ckpt.path=/checkpoints/wide \
    --ckpt.load_enable
