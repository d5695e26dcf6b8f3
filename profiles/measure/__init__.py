"""Measure train, score and decode of a Hugging Face architecture with random weights on the local GPU.

`measure` is the facade; `python -m libra_plan.profiles.measure` runs it. Torch and transformers are
loaded only when a measurement starts.
"""

from __future__ import annotations

from libra_plan.profiles.measure.facade import MeasureReport, measure
from libra_plan.profiles.measure.plan import PlannedPoint, default_plan, read_plan
from libra_plan.profiles.measure.runner import Settings

__all__ = ["MeasureReport", "PlannedPoint", "Settings", "default_plan", "measure", "read_plan"]
