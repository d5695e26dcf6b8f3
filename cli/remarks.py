"""Remarks on what is planned and on the plan, for stderr: what a user would not expect of either."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from libra_plan.cli import render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from libra_plan.planner.plan import Plan
    from libra_plan.planner.problem import Policy
    from libra_plan.profiles.catalog import ProfilesFolder
    from libra_plan.profiles.schema import WorkloadFile

__all__ = ["say_of_plan", "say_of_workload"]


def say_of_workload(folder: ProfilesFolder, policy: Policy) -> None:
    """Say what the workload leaves out that the policy asks for, and which models do not go together."""
    from libra_plan.profiles.plausibility import mixed_models

    if folder.workload is None:
        return
    for line in mixed_models(folder.workload, folder.profiles):
        render.note(f"warning: {line}")
    if policy.value == "fair-share" and not folder.workload.quotas:
        render.note(
            "the workload states no `quotas`: --policy fair-share lets every task borrow whatever is idle, "
            "which plans as --policy throughput does"
        )


def say_of_plan(plan: Plan, workload: WorkloadFile | None) -> None:
    """Say which tasks no plan can run as they are, and what of the plan is less sure or cannot be started."""
    from libra_plan.models.priors.ranks import RANKS_BEYOND
    from libra_plan.planner.problem import SharingKind

    for queued in plan.queued:
        if queued.code == "refused":
            render.note(f"warning: it waits because it cannot be priced: {queued.reason}")
    for running in plan.running:
        for role in running.roles:
            for line in role.choice.option.notes:
                if line.startswith(RANKS_BEYOND):
                    render.note(f"{running.task}/{role.role} is {line}")
    for line in _short_of_workers(plan, workload):
        render.note(f"warning: {line}")
    for joint in plan.joint:
        if joint.kind is SharingKind.ENGINE:
            render.note(
                f"warning: no launcher starts one engine for {' and '.join(joint.tasks)} yet: remove their "
                "`sharing` entry for a plan that can be started"
            )


def _short_of_workers(plan: Plan, workload: WorkloadFile | None) -> Iterator[str]:
    """Give a line for each env role with fewer workers than its tool calls keep busy on average.

    By Little's law these are samples × turns × seconds of a call ÷ seconds of a step. Cost models let no turn
    wait for a worker, so with fewer the step is longer than the plan says.
    """
    tasks = {} if workload is None else {task.id: task for task in workload.tasks}
    for running in plan.running:
        task = tasks.get(running.task)
        for role in () if task is None else task.roles:
            if task is None or role.workers is None or role.tool_wait_s_per_turn is None:
                continue
            calls_s = task.work_per_step.samples * task.work_per_step.turns * role.tool_wait_s_per_turn
            busy = calls_s / running.configuration.step_time_s.value
            if busy > role.workers:
                yield (
                    f"{task.id}/{role.id} has {role.workers:,} workers, and tool calls keep {busy:,.0f} busy "
                    "on average in this plan, which lets no turn wait for a worker: steps take at least "
                    f"{calls_s / role.workers:,.0f} s, not {running.configuration.step_time_s.value:,.0f} s; state "
                    f"`workers` of {math.ceil(busy):,} or more"
                )
