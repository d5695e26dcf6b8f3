"""The policies: what each asks of the master, and what tasks are given before any policy looks.

A policy is one module with one class that keeps the protocol `Rule`; `RULES` lists them.
"""

from __future__ import annotations

from libra_plan.planner.optimize.policies.base import Outcome, Rule
from libra_plan.planner.optimize.policies.fair_share import FairShare
from libra_plan.planner.optimize.policies.max_min import MaxMin
from libra_plan.planner.optimize.policies.priority import Priority
from libra_plan.planner.optimize.policies.throughput import Throughput
from libra_plan.planner.problem import Policy

__all__ = ["RULES", "Outcome", "Rule"]

RULES: dict[Policy, Rule] = {
    Policy.THROUGHPUT: Throughput(),
    Policy.MAX_MIN: MaxMin(),
    Policy.PRIORITY: Priority(),
    Policy.FAIR_SHARE: FairShare(),
}
