#!/bin/sh
# Task grpo, generation 1, for rlinf (0.3.0, a3816b59).
# Run on node n0: rlinf.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3 4 5 6 7
# rollout: n0 GPU 0 1 2 3 4 5 6 7
# reference: n0 GPU 0 1 2 3 4 5 6 7
# Merge rlinf.yaml into the configuration of your run (in `defaults`, after your own file).
# A reward without a model of its own is computed beside the actor.
set -eu
export LIBRA_PLAN_TASK=grpo
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/grpo
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export here
if [ "$#" -eq 0 ]; then
    set -- python3 train.py
fi
exec sh "$here/ray/driver.sh" "$@"
