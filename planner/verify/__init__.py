"""The verifier: checks a plan against its problem and shares no code with who made it."""

from libra_plan.planner.verify.verify import Violation, violations_of

__all__ = ["Violation", "violations_of"]
