"""Logs of other programs, read as their readers do."""

from __future__ import annotations

from pathlib import Path

from libra_plan.planner.telemetry.readers import ReaderFacts, find_reader
from libra_plan.profiles.importers.records import read_source

SAMPLES = Path(__file__).parents[1] / "data" / "readers"


def read(name, file, **facts):
    """Return the windows of a recorded log, and why records were left out."""
    skipped = []
    reader = find_reader(name)
    source = read_source(SAMPLES / file, reader.endings)
    windows = list(reader.read(source, ReaderFacts("task", **facts), skipped))
    return windows, [each.reason for each in skipped]


def role(windows, name):
    """Return the windows of a role."""
    return [window for window in windows if window.role == name]
