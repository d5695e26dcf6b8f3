#!/bin/sh
# wide/actor on n0
set -eu
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export OMP_NUM_THREADS=4
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120
export LIBRA_PLAN_TASK=wide
export LIBRA_PLAN_ROLE=actor
export LIBRA_PLAN_NODE=n0
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/wide
export LIBRA_PLAN_TP=1
export LIBRA_PLAN_PP=1
export LIBRA_PLAN_CP=1
export LIBRA_PLAN_EP=1
export LIBRA_PLAN_DP=16
export LIBRA_PLAN_MEMORY_MODE=resident
export LIBRA_PLAN_GPU_UUIDS=GPU-n0-0,GPU-n0-1,GPU-n0-2,GPU-n0-3,GPU-n0-4,GPU-n0-5,GPU-n0-6,GPU-n0-7
exec torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --rdzv-backend static --master-addr 10.0.0.1 --master-port 24000 --rdzv-id wide-actor-g1 --rdzv-conf timeout=300 --role actor --max-restarts 0 -- train.py
