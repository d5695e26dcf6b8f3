#!/bin/sh
# grpo/actor, generation 1: run on node n0.
# It shares GPUs with rollout, reference: the framework must let them work in turn (memory mode: sleep).
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
unset CUDA_VISIBLE_DEVICES
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export OMP_NUM_THREADS=4
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120
export LIBRA_PLAN_TASK=grpo
export LIBRA_PLAN_ROLE=actor
export LIBRA_PLAN_NODE=n0
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/grpo
export LIBRA_PLAN_TP=1
export LIBRA_PLAN_PP=1
export LIBRA_PLAN_CP=1
export LIBRA_PLAN_EP=1
export LIBRA_PLAN_DP=8
export LIBRA_PLAN_SHARE_GROUP=share0
export LIBRA_PLAN_MEMORY_MODE=sleep
export LIBRA_PLAN_GPU_UUIDS=GPU-n0-0,GPU-n0-1,GPU-n0-2,GPU-n0-3,GPU-n0-4,GPU-n0-5,GPU-n0-6,GPU-n0-7
export DS_ENV_FILE="$here/deepspeed_env"
exec deepspeed --hostfile=/dev/null --include=localhost:0,1,2,3,4,5,6,7 --no_local_rank --master_port=24000 train.py
