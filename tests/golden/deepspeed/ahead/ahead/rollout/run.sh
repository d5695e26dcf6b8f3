#!/bin/sh
# ahead/rollout, generation 1: run on node n0.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
unset CUDA_VISIBLE_DEVICES
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export OMP_NUM_THREADS=4
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=300
export LIBRA_PLAN_TASK=ahead
export LIBRA_PLAN_ROLE=rollout
export LIBRA_PLAN_NODE=n0
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/ahead
export LIBRA_PLAN_TP=2
export LIBRA_PLAN_PP=1
export LIBRA_PLAN_CP=1
export LIBRA_PLAN_EP=1
export LIBRA_PLAN_DP=2
export LIBRA_PLAN_MEMORY_MODE=resident
export LIBRA_PLAN_GPU_UUIDS=GPU-n0-4,GPU-n0-5,GPU-n0-6,GPU-n0-7
export DS_ENV_FILE="$here/deepspeed_env"
exec deepspeed --hostfile=/dev/null --include=localhost:4,5,6,7 --no_local_rank --master_port=24001 train.py
