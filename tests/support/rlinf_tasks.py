"""RLinf's published placement instances as table-priced tasks."""

import json
from functools import cache
from pathlib import Path

from libra_plan.planner.tables import pipelined, table_task

_FILE = Path(__file__).parents[1] / "data" / "rlinf_instances.json"


@cache
def rlinf_instances():
    """Read the instances, by id."""
    return {each["id"]: each for each in json.loads(_FILE.read_text(encoding="utf-8"))["instances"]}


def rlinf_task(instance, **changes):
    """Make the task of an instance: seconds per step are groups × seconds per group."""
    groups = instance["rollout_batch_size"]
    roles = {
        role: {int(gpus): groups * seconds for gpus, seconds in instance["group_cost_s"][role].items()}
        for role in ("rollout", "inference", "actor")
    }
    return table_task(instance["id"], 1.0, roles, pipelined(groups), **changes)
