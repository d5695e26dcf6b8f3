"""What a hand-over reads and writes beside its folder, and which clock it goes by."""

from __future__ import annotations

import time
from pathlib import Path

from libra_plan.planner.runtime.settings import HandOverSettings, boot_clock


def test_roles_inherit_what_is_given_and_else_the_environment(monkeypatch):
    """An empty environment is given, too: nothing of the caller may leak into it."""
    monkeypatch.setenv("SEEN_BY_ROLES", "yes")
    assert HandOverSettings().inherited["SEEN_BY_ROLES"] == "yes"
    assert HandOverSettings(environment={}).inherited == {}


def test_costs_are_kept_in_the_run_and_in_the_profiles_if_named():
    """The run's own records come first; who names no profiles changes none."""
    run, profiles = Path("run"), Path("profiles")
    assert HandOverSettings().stores(run) == [run / "switch_costs.jsonl"]
    assert HandOverSettings(profiles=profiles).stores(run) == [
        run / "switch_costs.jsonl",
        profiles / "switch_costs.jsonl",
    ]


def test_the_clock_is_that_of_the_host():
    """Supervisors that follow one another take differences of it; a process's own clock begins anew."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boot_clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)
