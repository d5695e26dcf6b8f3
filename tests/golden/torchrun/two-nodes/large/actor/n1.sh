#!/bin/sh
# large/actor on n1: ranks 4-7 of 8
set -eu
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0,1,2,3
export OMP_NUM_THREADS=4
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120
export LIBRA_PLAN_TASK=large
export LIBRA_PLAN_ROLE=actor
export LIBRA_PLAN_NODE=n1
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/large
export LIBRA_PLAN_TP=4
export LIBRA_PLAN_PP=2
export LIBRA_PLAN_CP=1
export LIBRA_PLAN_EP=1
export LIBRA_PLAN_DP=1
export LIBRA_PLAN_MEMORY_MODE=resident
export LIBRA_PLAN_GPU_UUIDS=GPU-n1-0,GPU-n1-1,GPU-n1-2,GPU-n1-3
exec torchrun --nnodes 2 --node-rank 1 --nproc-per-node 4 --rdzv-backend static --master-addr 10.0.0.1 --master-port 24000 --rdzv-id large-actor-g1 --rdzv-conf timeout=300 --role actor --max-restarts 0 -- train.py
