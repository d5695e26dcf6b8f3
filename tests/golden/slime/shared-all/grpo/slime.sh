#!/bin/sh
# Task grpo, generation 1, for slime (624b824a, 002fa9d6).
# Run on node n0: slime.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3 4 5 6 7
# rollout: n0 GPU 0 1 2 3 4 5 6 7
# reference: n0 GPU 0 1 2 3 4 5 6 7
# The plan is synchronous: run train.py.
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
    --colocate \
    --actor-num-nodes=1 \
    --actor-num-gpus-per-node=8 \
    --rollout-num-gpus=8 \
    --rollout-num-gpus-per-engine=1 \
    --num-gpus-per-node=8 \
    --tensor-model-parallel-size=1 \
    --pipeline-model-parallel-size=1 \
    --context-parallel-size=1 \
    --expert-model-parallel-size=1 \
    --sglang-config="$here"/sglang.yaml \
    --load=/checkpoints/grpo \
    --save=/checkpoints/grpo
