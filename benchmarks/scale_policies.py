"""Whole solves at cluster scale under every policy: two-role tasks of many kinds, priced by tables."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from libra_plan.planner.configurations.keeping import ConfigurationFolder
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.objective import priced_tasks
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import (
    Coupling,
    CouplingKind,
    Deadline,
    Policy,
    Problem,
    Quota,
    Role,
    Task,
)
from libra_plan.planner.tables import TABLE_CLASS, table_cluster, table_role
from libra_plan.planner.verify import violations_of

POLICIES = (*(policy.value for policy in Policy), "budget", "deadlines", "missed-deadlines", "latency-first")
TEAMS = ("red", "green", "blue")
PRICE = 2.5  # an hour for a GPU
MOST_GPUS = 64  # of a role


def lines(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Solve under each policy asked for; with `--warm` again with the columns that the first solve kept."""
    for name in POLICIES if options.policy == "all" else (options.policy,):
        problem = problem_of(name, options.gpus, options.tasks, options.kinds or options.tasks, options.seed)
        if not options.warm:
            yield measured(name, problem, options, None)
            continue
        with tempfile.TemporaryDirectory() as folder:
            for run in ("cold", "warm"):
                line = measured(name, problem, options, ConfigurationFolder(Path(folder), 1024.0))
                yield {"run": run, **line}


def problem_of(policy: str, gpus: int, tasks: int, kinds: int, seed: int) -> Problem:
    """Generate a problem: what the policy asks of tasks is given to some of them."""
    rng = np.random.default_rng(seed)
    made = [_kind(rng) for _ in range(kinds)]
    named = tuple(
        replace(
            made[number % kinds],
            id=f"t{number}",
            weight=float(rng.integers(1, 6)),
            tier=number % 3,
            team=TEAMS[number % 3],
        )
        for number in range(tasks)
    )
    problem = Problem(table_cluster(gpus, 8), named)
    if policy in [each.value for each in Policy]:
        quotas = tuple(Quota(team, gpus // 4) for team in TEAMS) if policy == Policy.FAIR_SHARE.value else ()
        return replace(problem, policy=Policy(policy), quotas=quotas)
    if policy == "budget":
        cluster = replace(problem.cluster, price_per_gpu_hour=((TABLE_CLASS, PRICE),))
        return replace(problem, cluster=cluster, budget_per_hour=0.7 * PRICE * gpus)
    if policy == "latency-first":
        marked = [replace(each, latency_first=True, max_gpus=24) for each in named[::8]]
    else:  # every fourth task wants nearly its fair share's rate, or six times as much
        factor = 6.0 if policy == "missed-deadlines" else 0.9
        references = {each.task.id: each.reference or 1.0 for each in priced_tasks(problem, problem)}
        marked = [
            replace(each, deadline=Deadline(100.0, 100.0 / (factor * references[each.id])))
            for each in named[::4]
        ]
    changed = {each.id: each for each in marked}
    return replace(problem, tasks=tuple(changed.get(each.id, each) for each in named))


def _kind(rng: np.random.Generator) -> Task:
    rollout = _role(rng, "rollout", range(1, 33), rng.uniform(200, 4000))
    actor = _role(rng, "actor", (1, 2, 4, 8, 16), rng.uniform(100, 2000))
    asynchronous = Coupling(CouplingKind.ASYNC, 1)
    coupling = asynchronous if rng.random() < 0.5 else Coupling(CouplingKind.SYNC)
    return Task("", 1.0, (rollout, actor), coupling)


def _role(rng: np.random.Generator, name: str, replicas: Any, work: float) -> Role:
    """Make a role with one to four layouts, whose throughput grows as GPUs to the power of 0.6 to 0.9."""
    options = []
    for size in (1, 2, 4, 8)[int(rng.integers(4)) :]:
        efficiency, power = rng.uniform(0.8, 1.0), rng.uniform(0.6, 0.9)
        seconds = {n * size: work / (efficiency * (n * size) ** power) for n in replicas}
        kept = {gpus: time_s for gpus, time_s in seconds.items() if gpus <= MOST_GPUS}
        options += list(table_role(name, kept, replica_gpus=size).options)
    return Role(name, "rollout", tuple(options))


def measured(
    name: str, problem: Problem, options: argparse.Namespace, folder: ConfigurationFolder | None
) -> dict[str, Any]:
    """Solve and verify, and describe what was seen."""
    params = SolveParams(time_limit_s=options.time_limit, gap=options.gap, seed=options.seed, columns=folder)
    clock = time.process_time if options.cpu_clock else time.monotonic
    cpu, began = time.process_time(), time.monotonic()
    plan = solve_problem(problem, params, clock=clock).require_plan()
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    proof = plan.certificate
    return {
        "policy": name,
        "gpus": len(problem.cluster.gpus),
        "tasks": len(problem.tasks),
        "columns": proof.columns,
        "clock": "cpu" if options.cpu_clock else "wall",
        "wall_s": round(wall, 3),
        "cpu_s": round(cpu, 3),
        "columns_read": None if folder is None else folder.found,
        "columns_made": None if folder is None else folder.made,
        "objective": proof.objective,
        "bound": proof.bound,
        "gap": proof.gap,
        "status": proof.status.value,
        "passes": {each.name: _gap(each.objective, each.bound) for each in proof.passes},
        "deadlines_missed": len(proof.deadlines),
        "queued": len(plan.queued),
        "violations": len(violations_of(problem, plan)),
    }


def _gap(objective: float, bound: float) -> float:
    return abs(bound - objective) / max(abs(objective), 1.0)
