#!/bin/sh
# Task ahead, generation 1, for prime-rl (559b4477).
# Run on node n0: prime-rl.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3
# rollout: n0 GPU 4 5 6 7
# Give both files: prime-rl.sh uv run rl @ your.toml @ "$here/placement.toml" (later ones win).
# The plan is async with 2 steps of staleness: set that in your file.
set -eu
export LIBRA_PLAN_TASK=ahead
export LIBRA_PLAN_GENERATION=1
export LIBRA_PLAN_MANIFEST_DIGEST=DIGEST
export LIBRA_PLAN_CHECKPOINT_DIR=/checkpoints/ahead
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=4,5,6,7,0,1,2,3
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export here
if [ "$#" -eq 0 ]; then
    set -- python3 train.py
fi
exec "$@"
