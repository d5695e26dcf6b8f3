#!/bin/sh
# Task ahead, generation 1, for areal (1.0.4).
# Run on node n0: areal.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3
# rollout: n0 GPU 4 5 6 7
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
    scheduler.type=ray \
    cluster.n_nodes=1 \
    cluster.n_gpus_per_node=8 \
    rollout.max_head_offpolicyness=2 \
    'actor.backend='"'"'fsdp:d4'"'"'' \
    actor.scheduling_strategy.type=separation \
    'rollout.backend='"'"'sglang:d2t2'"'"'' \
    rollout.scheduling_strategy.type=separation
