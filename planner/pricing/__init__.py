"""Price a workload on a cluster: every role in every form it may take becomes a row of one table."""

from libra_plan.planner.pricing.tasks import price

__all__ = ["price"]
