"""The verifier: checks a plan against its problem and shares no code with who made it."""

from libra_plan.planner.verify.verify import Violation, verify

__all__ = ["Violation", "verify"]
