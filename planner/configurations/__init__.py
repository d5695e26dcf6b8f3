"""Configurations: every complete way to run one task that is not worse than another in all respects."""

from libra_plan.planner.configurations.generate import ConfigurationTable, configurations_of

__all__ = ["ConfigurationTable", "configurations_of"]
