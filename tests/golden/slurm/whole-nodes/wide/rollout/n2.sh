#!/bin/sh
# wide/rollout on n2
set -eu
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export OMP_NUM_THREADS=4
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120
export LIBRA_PLAN_TASK=wide
export LIBRA_PLAN_ROLE=rollout
export LIBRA_PLAN_NODE=n2
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/wide
export LIBRA_PLAN_TP=2
export LIBRA_PLAN_PP=1
export LIBRA_PLAN_CP=1
export LIBRA_PLAN_EP=1
export LIBRA_PLAN_DP=4
export LIBRA_PLAN_MEMORY_MODE=resident
export LIBRA_PLAN_GPU_UUIDS=GPU-n2-0,GPU-n2-1,GPU-n2-2,GPU-n2-3,GPU-n2-4,GPU-n2-5,GPU-n2-6,GPU-n2-7
exec torchrun --nnodes 1 --node-rank 0 --nproc-per-node 8 --rdzv-backend static --master-addr 127.0.0.1 --master-port 24000 --rdzv-id wide-rollout-g1 --rdzv-conf timeout=300 --role rollout --max-restarts 0 -- train.py
