#!/bin/sh
# long/generator on node0: ranks 0-1 of 2
# It shares GPUs with trainer: the framework must let them work in turn (memory mode: resident).
set -eu
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0,1
export OMP_NUM_THREADS=1
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600
export LIBRA_PLAN_TASK=long
export LIBRA_PLAN_ROLE=generator
export LIBRA_PLAN_NODE=node0
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=sha256:ffebb5473a3e718ffb162b691df7d25eba43aad3b771ada49f582cc6f2cbaa22
export LIBRA_PLAN_TP=1
export LIBRA_PLAN_PP=1
export LIBRA_PLAN_CP=1
export LIBRA_PLAN_EP=1
export LIBRA_PLAN_DP=2
export LIBRA_PLAN_SHARE_GROUP=share0
export LIBRA_PLAN_MEMORY_MODE=resident
exec python3 -m torch.distributed.run --nnodes 1 --node-rank 0 --nproc-per-node 2 --rdzv-backend static --master-addr 127.0.0.1 --master-port 24000 --rdzv-id long-generator-g1 --rdzv-conf timeout=300 --role generator --max-restarts 0 --module -- generator --model qwen2.5-1.5b --samples 64 --prompt-tokens 256 --tokens 512 --concurrency 64 --ahead 1 --steps 10 --turns /dev/shm/libra-plan-two-tasks --counts steps.jsonl
