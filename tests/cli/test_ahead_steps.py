"""`--ahead-steps` reaches the prices."""

import libra_plan as lp


def test_steps_ahead_are_asked_of_every_role():
    """A task without a history is priced as stated, and the plan says that nothing was forecast."""
    problem = lp.price("profiles", gpus=8, ahead_steps=3)
    option = problem.task_of["agent-7b"].roles[0].options[0]
    assert any("3 steps ahead as stated: no history_tokens" in note for note in option.notes)


def test_a_forecast_without_a_history_is_told(call):
    """The flag does nothing for such a task, and nothing else in the output says so."""
    ran = call("explain", "profiles", "--gpus", 8, "--ahead-steps", 3, "--time-limit", 2)
    assert "--ahead-steps 3" in ran.err
    assert "history_tokens" in ran.err
