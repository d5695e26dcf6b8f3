"""What a hand-over should cost, with its origin."""

from __future__ import annotations

import plans

from libra_plan.planner.launchers.manifest import Transition
from libra_plan.planner.runtime.forecast import forecasts
from libra_plan.profiles.switch_costs import SwitchPrice


def step(action, task="grpo"):
    return Transition(id=f"{action}:{task}", task=task, action=action, gpus_before=1, gpus_after=2, after=())


def test_recorded_moves_go_before_given_starts_and_nothing_is_made_up():
    """A number says what it rests on; a stop was never measured here, so it has none."""
    prices = {"grpo": SwitchPrice(31.5, 7)}
    steps = [step("resize"), step("start"), step("stop"), step("keep"), step("move", "other")]
    found = forecasts(steps, plans.single_node(), prices, {plans.GPU_CLASS: 8.32})
    assert [(one.seconds, one.origin) for one in found] == [
        (31.5, "measured"),
        (8.32, "assumed"),
        (None, None),
        (0.0, None),
        (None, None),
    ]
    assert forecasts([step("start")], None, prices, {plans.GPU_CLASS: 8.32})[0].seconds is None
