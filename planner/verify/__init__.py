"""The verifier: checks a plan against its problem and shares no code with who made it."""

from libra_plan.planner.verify.proof import Proof
from libra_plan.planner.verify.verify import Verdict, Violation, check_plan, violations_of

__all__ = ["Proof", "Verdict", "Violation", "check_plan", "violations_of"]
