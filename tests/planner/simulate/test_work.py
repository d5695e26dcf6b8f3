"""The law of outcomes: what was published holds of what it draws, and nothing else moves lengths."""

import msgspec
import numpy as np
import pytest
from sim_worlds import DECODE, Tools, make_task, make_world

from libra_plan.errors import WorkloadError
from libra_plan.planner.simulate.replica import Replica, Trajectory
from libra_plan.planner.simulate.stage_times import expected_step_lengths, rollout_closed_s
from libra_plan.planner.simulate.work import DrawnWork, read_tokens
from libra_plan.planner.simulate.world import Drift, Outcomes, read_world

LATE = Drift(first_mean_tokens=11_500, sigma=1.0, max_tokens=40_960)
OUTCOMES = Outcomes(prompts=8, per_prompt=16)
WIDE = msgspec.structs.replace(DECODE, kv_tokens=4_000_000)


def drawn(outcomes=OUTCOMES, **more):
    """Draw the steps of a task with outcomes."""
    task = make_task(responses=LATE, turns=5, tools=Tools(mean_s=1.0), outcomes=outcomes, **more)
    return DrawnWork(task, seed=3)


def test_tool_output_is_what_was_published_of_it():
    """1K of tool output belongs to 8K tokens, 12.5K to 21K, and more never replaces all that is generated."""
    assert read_tokens(np.array([8_000, 21_000, 40_960])).tolist() == [1_000, 12_500, 12_500]
    generated = np.arange(1, 40_960) - read_tokens(np.arange(1, 40_960))
    assert (np.diff(generated) >= 0).all()
    assert generated[0] == 1


def test_outcomes_leave_the_law_of_lengths_as_it_is():
    """A planner prices the law of responses: correlation within prompts must not move it."""
    with_them, without = drawn(Outcomes(prompts=4096, per_prompt=1), samples=4096), drawn(None, samples=4096)
    ours, plain = (
        np.sort([each.final - each.prompt for each in work.step(0).trajectories])
        for work in (with_them, without)
    )
    assert np.quantile(ours, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(plain, [0.1, 0.5, 0.9]), rel=0.08)
    assert drawn().step(0).mean_response == pytest.approx(
        np.mean([each.final - each.prompt for each in drawn().step(0).trajectories])
    )


def test_a_prompt_comes_back_with_what_its_trajectories_have_in_common():
    """What is learnt of a prompt is worth something only if it holds the next time."""
    work = drawn(Outcomes(prompts=64, per_prompt=4, prompt_share=0.9), samples=256)
    first, again = (
        np.array([np.log(each.final) for each in work.step(step).trajectories]).reshape(64, 4).mean(axis=1)
        for step in (0, 1)
    )
    assert [each.prompt_id for each in work.step(1).trajectories[:5]] == [0, 0, 0, 0, 1]
    assert np.corrcoef(first, again)[0, 1] > 0.8


def test_every_turn_has_a_state_and_a_call():
    """Turns in proportion to length: a long trajectory is heard of as early as a short one."""
    work = drawn(Outcomes(prompts=8, per_prompt=16, turn_tokens=500, tools=2))
    for each in work.step(0).trajectories:
        assert len(each.states) == len(each.calls_s) == each.turns
        assert each.turns == max(1, round((each.final - each.prompt) / 500))


def test_tool_output_is_prefilled_and_takes_room():
    """Tokens that a tool returns cost prefill, not decode steps, and lie in the context after them."""
    costs = msgspec.structs.replace(DECODE, prefill_s_per_token=1e-3)
    ends = []
    for read in (0, 400):
        replica = Replica("r", 1, costs.coefficients(), 4, 10_000, costs.prefill_s_per_token)
        trajectory = Trajectory(0, 0, 100, 1000, 2, (0.0, 0.0), read)
        replica.put(trajectory, 0.0)
        while replica.next_s() < np.inf:
            replica.step()
        ends.append(replica.now)
    longer = 200 * costs.prefill_s_per_token + costs.per_token_s * 200 * 500  # the second turn reads them
    assert ends[1] - ends[0] == pytest.approx(longer, rel=1e-9)


def test_a_planner_does_not_count_what_is_read_as_generated():
    """The closed forms must price what the engine runs: tool output costs prefill, not decode steps."""
    told = make_task(responses=LATE, turns=5, tools=Tools(mean_s=1.0), outcomes=OUTCOMES, samples=32)
    plain = msgspec.structs.replace(told, outcomes=None)
    assert expected_step_lengths(told, 11_500.0).tolist() == expected_step_lengths(plain, 11_500.0).tolist()
    told_s, plain_s = (rollout_closed_s(task, WIDE, 11_500.0, 1, drains=True) for task in (told, plain))
    assert 0.5 * plain_s < told_s < 0.9 * plain_s


def test_outcomes_without_tools_are_refused(tmp_path):
    """Nothing would ever return them."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(msgspec.yaml.encode(make_world(make_task(outcomes=OUTCOMES))))
    with pytest.raises(WorkloadError, match="tools are not given"):
        read_world(path)
