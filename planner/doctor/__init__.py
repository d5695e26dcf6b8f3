"""Find in recordings what holds the pipeline back, with evidence, cause, advice and gain."""

from libra_plan.planner.doctor.diagnose import FINDERS, Diagnosis, Unseen, diagnose, judge
from libra_plan.planner.doctor.evidence import Evidence, gather
from libra_plan.planner.doctor.finding import Finder, Finding, Gain, Level, Need
from libra_plan.planner.doctor.settings import Thresholds

__all__ = [
    "FINDERS",
    "Diagnosis",
    "Evidence",
    "Finder",
    "Finding",
    "Gain",
    "Level",
    "Need",
    "Thresholds",
    "Unseen",
    "diagnose",
    "gather",
    "judge",
]
