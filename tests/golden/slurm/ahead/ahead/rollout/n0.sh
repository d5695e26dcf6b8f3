#!/bin/sh
# ahead/rollout on n0
set -eu
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=4,5,6,7
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
exec torchrun --nnodes 1 --node-rank 0 --nproc-per-node 4 --rdzv-backend static --master-addr 127.0.0.1 --master-port 24001 --rdzv-id ahead-rollout-g1 --rdzv-conf timeout=300 --role rollout --max-restarts 0 -- train.py
