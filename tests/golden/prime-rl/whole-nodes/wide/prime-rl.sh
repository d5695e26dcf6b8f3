#!/bin/sh
# Task wide, generation 1, for prime-rl (559b4477).
# Run on node n0: prime-rl.sh COMMAND ...; without a command it runs that of the workload.
# Placement only: model, data and algorithm stay in your own configuration.
# actor: n0 GPU 0 1 2 3 4 5 6 7, n1 GPU 0 1 2 3 4 5 6 7
# rollout: n2 GPU 0 1 2 3 4 5 6 7
# Give both files: prime-rl.sh uv run rl @ your.toml @ "$here/placement.toml" (later ones win).
# The plan is async with 2 steps of staleness: set that in your file.
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
exec "$@"
