"""Columns: every complete way to run one task that is not worse than another in all respects."""

from libra_plan.planner.columns.generate import ColumnTable, columns_of

__all__ = ["ColumnTable", "columns_of"]
