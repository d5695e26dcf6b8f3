#!/bin/sh
# short/generator on node0: ranks 0-0 of 1
set -eu
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=0
export OMP_NUM_THREADS=1
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=600
export LIBRA_PLAN_TASK=short
export LIBRA_PLAN_ROLE=generator
export LIBRA_PLAN_NODE=node0
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=sha256:e1062a44fc80a508ea045d99dd218e87eeeaadbb8887fe458aedf22770c4020e
export LIBRA_PLAN_TP=1
export LIBRA_PLAN_PP=1
export LIBRA_PLAN_CP=1
export LIBRA_PLAN_EP=1
export LIBRA_PLAN_DP=1
export LIBRA_PLAN_MEMORY_MODE=resident
exec python3 -m torch.distributed.run --nnodes 1 --node-rank 0 --nproc-per-node 1 --rdzv-backend static --master-addr 127.0.0.1 --master-port 24000 --rdzv-id short-generator-g1 --rdzv-conf timeout=300 --role generator --max-restarts 0 --module -- generator --model qwen2.5-1.5b --samples 512 --prompt-tokens 256 --tokens 256 --concurrency 256 --ahead 1 --steps 8 --turns /dev/shm/libra-plan-two-tasks --counts steps.jsonl
