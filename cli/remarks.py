"""Remarks on what is planned and on the plan, for stderr: what a user would not expect of either."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libra_plan.cli import render

if TYPE_CHECKING:
    from libra_plan.planner.plan import Plan
    from libra_plan.planner.problem import Policy
    from libra_plan.profiles.catalog import ProfilesFolder

__all__ = ["say_of_plan", "say_of_workload"]


def say_of_workload(folder: ProfilesFolder, policy: Policy) -> None:
    """Say what the workload leaves out that the policy asks for, and which models do not go together."""
    from libra_plan.profiles.model_checks import mixed_models

    if folder.workload is None:
        return
    for line in mixed_models(folder.workload, folder.profiles):
        render.note(f"warning: {line}")
    if policy.value == "fair-share" and not folder.workload.quotas:
        render.note(
            "the workload states no `quotas`: --policy fair-share lets every task borrow whatever is idle, "
            "which plans as --policy throughput does"
        )


def say_of_plan(plan: Plan) -> None:
    """Say which tasks no plan can run as they are, and what of the plan is less sure or cannot be started."""
    from libra_plan.models.ranks import RANKS_BEYOND
    from libra_plan.planner.problem import SharingKind

    for queued in plan.queued:
        if queued.code == "refused":
            render.note(f"warning: it waits because it cannot be priced: {queued.reason}")
    for running in plan.running:
        for role in running.roles:
            for line in role.choice.option.notes:
                if line.startswith(RANKS_BEYOND):
                    render.note(f"{running.task}/{role.role} is {line}")
    for joint in plan.joint:
        if joint.kind is SharingKind.ENGINE:
            render.note(
                f"warning: no launcher starts one engine for {' and '.join(joint.tasks)} yet: remove their "
                "`sharing` entry for a plan that can be started"
            )
