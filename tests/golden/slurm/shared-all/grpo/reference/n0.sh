#!/bin/sh
# grpo/reference on n0
# It shares GPUs with actor, rollout: the framework must let them work in turn (memory mode: sleep).
set -eu
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export OMP_NUM_THREADS=4
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120
export LIBRA_PLAN_TASK=grpo
export LIBRA_PLAN_ROLE=reference
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
exec torchrun --nnodes 1 --node-rank 0 --nproc-per-node 8 --rdzv-backend static --master-addr 127.0.0.1 --master-port 24002 --rdzv-id grpo-reference-g1 --rdzv-conf timeout=300 --role reference --max-restarts 0 -- train.py
