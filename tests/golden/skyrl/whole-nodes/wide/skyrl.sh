#!/bin/sh
# Task wide, generation 1, for skyrl (0.3.0, a9564572).
# Run on node n0: skyrl.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3 4 5 6 7, n1 GPU 0 1 2 3 4 5 6 7
# rollout: n2 GPU 0 1 2 3 4 5 6 7
# The plan is async: run the asynchronous trainer.
set -eu
export LIBRA_PLAN_TASK=wide
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/wide
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export here
if [ "$#" -eq 0 ]; then
    set -- python3 train.py
fi
exec sh "$here/ray/driver.sh" "$@" \
    trainer.placement.colocate_all=false \
    trainer.placement.colocate_policy_ref=false \
    trainer.placement.policy_num_nodes=2 \
    trainer.placement.policy_num_gpus_per_node=8 \
    trainer.strategy=fsdp \
    trainer.policy.sequence_parallel_size=1 \
    generator.inference_engine.num_engines=4 \
    generator.inference_engine.tensor_parallel_size=2 \
    generator.inference_engine.pipeline_parallel_size=1 \
    generator.inference_engine.data_parallel_size=1 \
    generator.inference_engine.expert_parallel_size=1 \
    'trainer.ckpt_path='"'"'/checkpoints/wide'"'"'' \
    trainer.resume_mode=latest
