#!/bin/sh
# Task ahead, generation 1, for verl (0.9.1).
# Run on node n0: verl.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3
# rollout: n0 GPU 4 5 6 7
# topology.yaml says it in the form that RFC 7269 proposes; verl 0.9.1 does not read it.
set -eu
export LIBRA_PLAN_TASK=ahead
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/ahead
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export here
if [ "$#" -eq 0 ]; then
    set -- python3 train.py
fi
exec sh "$here/ray/driver.sh" "$@" \
    trainer.nnodes=1 \
    trainer.n_gpus_per_node=4 \
    trainer.use_v1=true \
    trainer.v1.trainer_mode=separate_async \
    actor_rollout_ref.hybrid_engine=false \
    actor_rollout_ref.rollout.nnodes=1 \
    actor_rollout_ref.rollout.n_gpus_per_node=4 \
    actor_rollout_ref.rollout.checkpoint_engine.backend=nccl \
    trainer.v1.sampler.max_off_policy_threshold=2 \
    actor_rollout_ref.actor.ulysses_sequence_parallel_size=1 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
    actor_rollout_ref.rollout.data_parallel_size=1 \
    actor_rollout_ref.rollout.expert_parallel_size=1 \
    reward.reward_model.enable_resource_pool=false \
    trainer.resume_mode=auto \
    'trainer.default_local_dir='"'"'/checkpoints/ahead'"'"''
