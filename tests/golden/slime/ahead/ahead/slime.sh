#!/bin/sh
# Task ahead, generation 1, for slime (624b824a, 002fa9d6).
# Run on node n0: slime.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3
# rollout: n0 GPU 4 5 6 7
# The plan is async: run train_async.py.
set -eu
export LIBRA_PLAN_TASK=ahead
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/ahead
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export here
if [ "$#" -eq 0 ]; then
    set -- python3 train.py
fi
exec sh "$here/ray/driver.sh" "$@" \
    --actor-num-nodes=1 \
    --actor-num-gpus-per-node=4 \
    --rollout-num-gpus=4 \
    --rollout-num-gpus-per-engine=2 \
    --num-gpus-per-node=8 \
    --tensor-model-parallel-size=1 \
    --pipeline-model-parallel-size=1 \
    --context-parallel-size=1 \
    --expert-model-parallel-size=1 \
    --sglang-config="$here"/sglang.yaml \
    --load=/checkpoints/ahead \
    --save=/checkpoints/ahead
