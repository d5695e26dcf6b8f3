"""What a look is told may be old, from the future or of another form; clocks may be set."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from loops import (
    EAGER,
    Loop,
    at,
    policy,
    running_best,
    scaling,
    shifted_world,
    training,
    two_tasks,
    well,
    world,
)

from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.plan import held_by
from libra_plan.planner.telemetry.observations import (
    CheckpointAge,
    Event,
    EventKind,
    Moment,
)


def test_missing_or_old_telemetry_keeps() -> None:
    """What nobody has seen is not acted on (A041)."""
    loop = Loop(shifted_world(), EAGER)
    assert loop.look(telemetry=False).decision.rule == "telemetry"
    old = reconcile(LoopInputs(loop.problem, EAGER, at(10), well(loop.problem, at(0))), LoopState())
    assert old.decision.rule == "telemetry"
    assert old.decision.plan is None


def test_telemetry_from_the_future_keeps() -> None:
    """A host whose clock is ahead says nothing of now; nor does a time that is no number."""
    loop = Loop(shifted_world(), EAGER)
    for until_s in (at(100).wall_s, float("inf"), float("nan")):
        window = msgspec.structs.replace(well(loop.problem, at(0)), until_s=until_s)
        looked = reconcile(LoopInputs(loop.problem, EAGER, at(0), window), LoopState())
        assert (looked.decision.rule, looked.decision.plan) == ("telemetry", None)


@pytest.mark.parametrize("age_s", [-3600.0, float("nan")])
def test_a_checkpoint_dated_after_now_is_no_fresh_one(age_s: float) -> None:
    """Its age is not known, so the task is not moved and a checkpoint is ordered."""
    loop = Loop(training(training(shifted_world(), "a"), "b"), EAGER)
    looked = loop.look(checkpoints=(CheckpointAge("a", age_s), CheckpointAge("b", age_s)))
    assert looked.decision.plan is None
    assert looked.decision.orders == ("checkpoint:a", "checkpoint:b")


def test_what_was_seen_before_a_move_says_nothing_of_the_new_form() -> None:
    """A file that nobody wrote anew counts neither steps nor memory that ran out twice."""
    problem = running_best(world(8, [replace(scaling("a", 100.0, 0.7, 8), max_gpus=2)]))
    options = tuple(replace(o, peak_mib=0.9 / o.gpus) for o in problem.tasks[0].roles[0].options)
    role = replace(problem.tasks[0].roles[0], options=options)
    problem = replace(problem, tasks=(replace(problem.tasks[0], roles=(role,), max_gpus=4),))
    loop = Loop(problem, EAGER)
    loop.look(telemetry=False)
    told = well(problem, at(1), events=(Event(EventKind.OUT_OF_MEMORY, task="a"),))
    plans = []
    for number in (1, 2, 3):
        looked = reconcile(LoopInputs(loop.problem, EAGER, at(number), told), loop.state)
        plan = looked.decision.plan
        plans.append(plan)
        loop.state = looked.kept if plan is None else looked.adopted
        if plan is not None:
            loop.problem = replace(loop.problem, running=held_by(plan))
    assert [plan is None for plan in plans] == [False, True, True]
    assert loop.gpus("a") == 4
    assert not loop.state.clock_for("a").progressed


@pytest.mark.parametrize("off_s", [-3600.0, 3600.0])
def test_a_clock_step_keeps_and_lives_on(off_s: float) -> None:
    """A078: the wall clock jumps an hour: nothing is changed on that look, and no stay gets longer."""
    loop = Loop(shifted_world(), policy(rule={"looks_up": 1, "looks_down": 1}))
    loop.look(telemetry=False)
    lived = loop.state.clock.loop_s
    looked = loop.look(now=Moment(at(1).wall_s + off_s, at(1).boot_s, "boot"))
    assert looked.decision.rule == "clock"
    assert looked.decision.plan is None
    assert loop.state.clock.loop_s == pytest.approx(lived + 60.0)
    after = loop.look(now=Moment(at(2).wall_s + off_s, at(2).boot_s, "boot"))
    assert after.decision.rule == "gain"


def test_a_reboot_counts_by_the_wall_clock() -> None:
    """The boot clock begins anew; the time between is taken from the wall, and never negative."""
    loop = Loop(two_tasks())
    loop.look()
    loop.look(now=Moment(at(0).wall_s + 500.0, 3.0, "other"))
    assert loop.state.clock.loop_s == pytest.approx(500.0)
    looked = loop.look(now=Moment(at(0).wall_s, 3.0, "third"))
    assert looked.decision.rule == "clock"


def test_an_event_during_a_clock_step_is_acted_on_at_the_next_look() -> None:
    """Nothing that happened is forgotten with the look that was skipped."""
    loop = Loop(running_best(world(8, [replace(scaling("a", 100.0, 0.7, 8), max_gpus=4)])))
    loop.look()
    loop.problem = replace(loop.problem, tasks=(*loop.problem.tasks, scaling("new", 50.0, 0.7, 8)))
    assert loop.look(now=Moment(at(1).wall_s + 900.0, at(1).boot_s, "boot")).decision.rule == "clock"
    later = loop.look(now=Moment(at(2).wall_s + 900.0, at(2).boot_s, "boot"))
    assert [(move.task, move.action) for move in later.decision.moves] == [("new", "start")]
