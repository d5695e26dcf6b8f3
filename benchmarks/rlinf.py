"""Solve RLinf's placement instances and compare with its answer and the exact optimum.

    python benchmarks/rlinf.py [FILE]

The instances are what RLinf's auto-placement computes from the cost tables in its own tests and
documentation (github.com/RLinf/RLinf at a3816b59, Apache-2.0); they lie in
`tests/data/rlinf_instances.json`, whose note says what its keys mean, and another FILE must look alike.
Embodied instances, which that file does not hold, say `task_type: embodied`, their `cost_tables` and
`env_num`, and what RLinf answered in `rlinf_answer`.

Each instance becomes one task priced by its cost table, once in RLinf's own plan space (roles that
share a pool all use the whole of it), once in ours (a role may use some of the pool's GPUs). Reasoning
instances are pipelined over their groups. Embodied ones are pipelined over their environments, the
actor after both; RLinf's own price of a split forgets all but one environment, so its answer is
priced again here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Problem, Task
from libra_plan.planner.tables import pipelined, table_cluster, table_task
from libra_plan.planner.verify import violations_of

INSTANCES = Path(__file__).parents[1] / "tests" / "data" / "rlinf_instances.json"
ORDER = {"reasoning": ("rollout", "inference", "actor"), "embodied": ("env", "env_rollout", "actor")}


def tables_of(instance: dict[str, Any]) -> dict[str, dict[str, float]]:
    return instance.get("group_cost_s") or instance["cost_tables"]


def task_of(instance: dict[str, Any], *, fill: bool) -> Task:
    kind = instance.get("task_type", "reasoning")
    groups = instance["rollout_batch_size"] if kind == "reasoning" else instance["env_num"]
    per_step = groups if kind == "reasoning" else 1
    roles = {
        role: {int(gpus): per_step * seconds for gpus, seconds in tables_of(instance)[role].items()}
        for role in ORDER[kind]
    }
    return table_task(instance["id"], 1.0, roles, pipelined(groups), roles_fill_pools=fill)


def best_seconds(instance: dict[str, Any], *, fill: bool) -> float:
    problem = Problem(table_cluster(instance["total_gpus"]), (task_of(instance, fill=fill),))
    plan = solve_problem(problem, SolveParams(gap=0.0)).require_plan()
    assert violations_of(problem, plan) == []
    return plan.running[0].configuration.step_time_s.value


def peer_seconds(instance: dict[str, Any]) -> float | None:
    """Return the seconds of RLinf's answer; embodied splits by the pipelined form for all groups."""
    answer = instance.get("rlinf_answer")
    if not answer or answer.get("mode") is None:
        return instance.get("peer_total_s")
    if instance["task_type"] == "reasoning":
        return float(answer["predicted_total_s"])
    gpus = answer["gpu_counts"]
    env, rollout, actor = (tables_of(instance)[role][str(gpus[role])] for role in ORDER["embodied"])
    if gpus["env"] == gpus["env_rollout"] == instance["total_gpus"]:
        return float(env + rollout + actor)
    groups = instance["env_num"]
    return float((env + rollout) / groups + (1 - 1 / groups) * max(env, rollout) + actor)


def exact_seconds(instance: dict[str, Any]) -> float | None:
    if "exact_total_s" in instance:
        return instance["exact_total_s"].get("hybrid")
    return (instance.get("exact") or {}).get("hybrid", {}).get("total_s")


def read(path: Path) -> list[dict[str, Any]]:
    """Read the instances, or leave with one line that says what is wrong."""
    try:
        instances = list(json.loads(path.read_text(encoding="utf-8"))["instances"])
        for each in instances:
            task_of(each, fill=True)
    except OSError as problem:
        sys.exit(f"rlinf.py: {path}: {problem.strerror}; without FILE it takes {INSTANCES.name}")
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        sys.exit(f"rlinf.py: {path}: not like {INSTANCES.name}: {type(problem).__name__} {problem}")
    return instances


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("instances", type=Path, nargs="?", default=INSTANCES, metavar="FILE")
    instances = read(parser.parse_args(arguments).instances)
    bad = 0
    names = ("same space s", "ours s", "peer s", "exact s", "seconds")
    print(f"{'instance':26} {'GPUs':>5} " + " ".join(f"{name:>12}" for name in names) + "  verdict")
    for instance in instances:
        start = time.perf_counter()
        same = best_seconds(instance, fill=True)
        took = time.perf_counter() - start
        ours, peer = best_seconds(instance, fill=False), peer_seconds(instance)
        exact = exact_seconds(instance)
        worse = peer is not None and ours > peer * (1 + 1e-9)
        unequal = exact is not None and abs(same - exact) > 1e-6 * exact
        bad += worse or unequal
        verdict = "WORSE THAN PEER" if worse else "NOT EXACT" if unequal else "ok"
        values = (same, ours, peer, exact)
        shown = " ".join(f"{'–' if value is None else f'{value:.4f}':>12}" for value in values)
        print(f"{instance['id']:26} {instance['total_gpus']:5} {shown} {took:12.3f}  {verdict}")
    print(f"{len(instances)} instances, {bad} worse than the peer or not exact")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
