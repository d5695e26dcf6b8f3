"""A plan as a table of pandas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libra_plan.errors import InputError
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem
from libra_plan.planner.report.node_ranges import node_ranges
from libra_plan.planner.report.plan_text import gpus_by_node
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["plan_frame"]


def plan_frame(problem: Problem, plan: Plan) -> DataFrame:
    """Return one row for each role, with the figures of its task; memory in MiB, unknown as missing."""
    try:
        import pandas
    except ImportError:
        raise InputError(
            "tables of pandas need pandas",
            got="no pandas in this environment",
            allowed="the package pandas",
            way_out="pip install 'libra-plan[pandas]', or take `to_dict()`",
        ) from None
    rows = []
    for running in plan.running:
        task, step = problem.task_of[running.task], running.configuration.step_time_s
        of_task = {
            "weight": task.weight,
            "step_s": step.value,
            "step_low_s": step.low,
            "step_high_s": step.high,
            "samples_per_s": None if task.samples_per_step is None else task.samples_per_step / step.value,
            "tokens_per_s": None if task.tokens_per_step is None else task.tokens_per_step / step.value,
            "fair_share": running.normalised,
            "moved": running.moved,
        }
        for role in running.roles:
            option = role.choice.option
            of_role = {
                "layout": option.form,
                "replicas": len(role.replicas),
                "gpus": len(set(role.gpus)),
                "placed": gpus_by_node(sorted(set(role.gpus))),
                "stage_s": option.time_s.value,
                "origin": option.time_s.origin.value,
                "peak_mib": option.peak_mib,
            }
            rows.append({"task": running.task, "role": role.role, **of_role, **of_task})
        for name in dict.fromkeys(share.role for share in running.cpu):
            shares = [share for share in running.cpu if share.role == name]
            workers = sum(share.workers for share in shares)
            on_cpus = {
                "layout": counted(workers, "worker"),
                "replicas": workers,
                "gpus": 0,
                "placed": f"{node_ranges([share.node for share in shares])} (CPU)",
            }
            rows.append({"task": running.task, "role": name, **on_cpus, **of_task})
    return pandas.DataFrame(rows)
