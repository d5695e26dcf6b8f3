"""Configurations: all complete ways to run one task that no other way dominates."""

from libra_plan.planner.configurations.generate import ConfigurationTable, configurations_of

__all__ = ["ConfigurationTable", "configurations_of"]
