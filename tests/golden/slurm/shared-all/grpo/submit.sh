#!/bin/sh
# Submit task grpo, generation 1; its job number goes to job.id.
# With the number of the old generation's job it waits for that one's end: submit.sh [OLD].
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
export LIBRA_PLAN_FOLDER="$here"
set -- ${1:+"--dependency=afterany:$1"}
sbatch --parsable --export=ALL "$@" "$here/job.sbatch" > "$here/job.id"
cat "$here/job.id"
