#!/bin/sh
# grpo/env on n0: 16 workers
# This role has no GPUs: the program starts LIBRA_PLAN_WORKERS workers itself.
set -eu
export CUDA_VISIBLE_DEVICES=''
export LIBRA_PLAN_WORKERS=16
export LIBRA_PLAN_TASK=grpo
export LIBRA_PLAN_ROLE=env
export LIBRA_PLAN_NODE=n0
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/grpo
exec python -m agent.run --config 'a b.yaml'
