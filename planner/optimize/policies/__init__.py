"""The policies, and the requirements of tasks that come before any policy.

A policy is one module with one class that keeps the protocol `PlanPolicy`; `POLICIES` lists them.
"""

from __future__ import annotations

from libra_plan.planner.optimize.policies.base import PlanPolicy, PolicyResult
from libra_plan.planner.optimize.policies.fair_share import FairShare
from libra_plan.planner.optimize.policies.max_min import MaxMin
from libra_plan.planner.optimize.policies.throughput import Priority, Throughput
from libra_plan.planner.problem import Policy

__all__ = ["POLICIES", "PlanPolicy", "PolicyResult"]

POLICIES: dict[Policy, PlanPolicy] = {
    Policy.THROUGHPUT: Throughput(),
    Policy.MAX_MIN: MaxMin(),
    Policy.PRIORITY: Priority(),
    Policy.FAIR_SHARE: FairShare(),
}
