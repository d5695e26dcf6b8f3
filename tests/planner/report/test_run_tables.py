"""What people read about launchers, launches, hand-overs and what runs."""

from __future__ import annotations

import plans
import pytest

import libra_plan as lp
from libra_plan.errors import LaunchError
from libra_plan.planner.launchers.manifest import Transition
from libra_plan.planner.report.run_tables import (
    dry_run_note,
    hand_over_notes,
    hand_over_text,
    launch_text,
    launchers_text,
    status_text,
)
from libra_plan.planner.runtime.apply import HandOverReport
from libra_plan.planner.runtime.costs import StepForecast
from libra_plan.planner.runtime.status import Difference, RoleStatus, StatusReport
from libra_plan.profiles.switch_costs import RoleSwitch, SwitchRecord

STEP = Transition(id="resize:a", task="a", action="resize", gpus_before=1, gpus_after=2, after=("stop:b",))
MOVED = SwitchRecord(
    schema_version=1,
    task="a",
    action="resize",
    gpu_class=None,
    gpus_before=1,
    gpus_after=2,
    checkpoint_s=1.0,
    drain_s=None,
    save_s=0.5,
    stop_s=2.0,
    roles=(
        RoleSwitch(role="x", gpus=1, start_s=3.0, load_s=None, warm_up_s=1.0),
        RoleSwitch(role="y", gpus=1, start_s=4.0, load_s=None, warm_up_s=None),
    ),
    lost_s=7.5,
    at="",
)


def forecast(seconds, origin):
    return StepForecast("resize:a", "a", "resize", 1, 2, ("stop:b",), seconds, origin)


def report(**more):
    return HandOverReport("n0", (STEP,), **more)


def test_a_launcher_is_shown_with_versions_abilities_and_options():
    """Whoever picks one wants to know all three."""
    text = launchers_text(lp.launchers("deepspeed"))
    assert text.splitlines()[:2] == ["deepspeed", "  checked against: 0.19.6"]
    assert "exact GPUs" in text
    assert text.splitlines()[3] == "  options: tasks=, ssh_port=22"


def test_a_dry_launch_shows_words_a_shell_could_run():
    """They are copied into shells."""
    found = lp.launch(plans.single_node())
    assert launch_text(found).count("\n") == len(found.agents) - 1
    assert launch_text(found).startswith("grpo/actor on n0: torchrun --nnodes 1")
    assert dry_run_note(found).endswith("--yes starts 3 roles on n0")


@pytest.mark.parametrize(
    ("seconds", "origin", "cell"),
    [(31.5, "measured", "31.5"), (8.32, "assumed", "≥ 8.32"), (None, None, "not known")],
)
def test_a_step_shows_what_it_should_cost_and_on_what_that_rests(seconds, origin, cell):
    """The start of ranks alone is a least cost, and unknown is not 0."""
    text = hand_over_text(report(forecast=(forecast(seconds, origin),)))
    head, row = text.splitlines()
    assert head.split() == ["step", "GPUs", "after", "lost", "s", "origin"]
    assert row.startswith("resize:a  1 → 2  stop:b")
    assert cell in row


def test_what_moves_took_counts_the_slowest_role_and_leaves_out_what_is_unknown():
    """The task waits for the last of its roles."""
    text = hand_over_text(report(costs=(MOVED,)))
    assert text.splitlines() == [
        "nothing to do",
        "resize:a took: save 0.5 s, stop 2 s, start 4 s, warm-up 1 s, lost 7.5 s",
    ]


def test_notes_say_whether_anything_was_done():
    """A dry run looks much like a real one."""
    assert list(hand_over_notes(report())) == ["dry run: nothing was touched; --yes takes these steps"]
    assert list(hand_over_notes(HandOverReport("n0", ()))) == ["dry run: nothing was touched"]
    warned = list(hand_over_notes(report(ended=("a/x",))))
    assert warned[1].startswith("warning: a/x ended by itself, and no step starts it again; see its log")
    assert list(hand_over_notes(report(outcome="new"))) == ["done: nothing runs on n0"]
    assert list(hand_over_notes(report(outcome="stuck"))) == []


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"outcome": "old", "running": "sha256:x"}, "what ran before runs again"),
        ({"outcome": "old"}, "so nothing runs"),
        ({"outcome": "stuck"}, "what runs is neither plan"),
        ({"outcome": "left"}, "left unfinished"),
        ({"outcome": "new", "ended": ("a/x",)}, "a/x ended by itself"),
    ],
)
def test_a_hand_over_that_did_not_succeed_is_an_error(given, what):
    """Scripts look at the exit code alone."""
    with pytest.raises(LaunchError, match=what) as caught:
        report(**given).require_success()
    assert caught.value.way_out
    report(outcome="new").require_success()
    report().require_success()


def test_status_names_roles_and_differences():
    """A role without a process has a dash, not an empty cell."""
    roles = (RoleStatus("a", "x", 3, ("n0:0",), 7, "log"), RoleStatus("a", "env", 3, (), None, None))
    off = (Difference("missing-role", "a/env", "it is planned and was not started"),)
    found = StatusReport("n0", 3, "sha256:x", roles, off)
    assert [line.split() for line in status_text(found).splitlines()] == [
        ["role", "generation", "GPUs", "pid"],
        ["a/x", "3", "n0:0", "7"],
        ["a/env", "3", "CPU", "–"],
        ["missing-role:", "a/env:", "it", "is", "planned", "and", "was", "not", "started"],
    ]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "nothing was started here"),
        ({"stopped_at": "2026-01-01"}, "nothing runs: stopped at 2026-01-01"),
        ({"foreground": 7}, "a foreground launch is at work (pid 7); Ctrl-C there stops it"),
    ],
)
def test_status_says_why_no_role_runs(more, text):
    """Stopped on purpose, never started, and started otherwise are three things."""
    assert status_text(StatusReport("n0", None, None, (), (), **more)) == text


@pytest.mark.parametrize(
    ("kinds", "way_out"),
    [
        (("missing-role", "unfinished"), "apply --yes"),
        (("missing-rank", "wrong-generation"), "launch MANIFEST --detach"),
        (("wrong-generation",), "apply MANIFEST"),
        (("extra-process",), "stop the processes"),
    ],
)
def test_each_difference_has_the_way_out_that_helps(kinds, way_out):
    """`apply` starts no role that has ended, nor does it stop what is not its own."""
    found = StatusReport("n0", 3, "x", (), tuple(Difference(kind, "a", "b") for kind in kinds))
    with pytest.raises(LaunchError) as caught:
        found.require_as_planned()
    assert way_out in caught.value.way_out
    StatusReport("n0", 3, "x", (), ()).require_as_planned()
