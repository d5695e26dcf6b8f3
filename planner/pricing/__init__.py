"""Price a workload on a cluster: every role in every form it may take becomes a row of one table."""

from libra_plan.planner.pricing.tasks import price_workload

__all__ = ["price_workload"]
