"""The work of a step, drawn from a task's laws."""

import msgspec
import numpy as np
import pytest
from pricing_cases import REFERENCE, ROLLOUT, WORK, task_of

from libra_plan.models.pricing.work import work_of
from libra_plan.profiles.schema import Fixed, RoleSpec

JUDGE = msgspec.structs.replace(ROLLOUT, id="judge", kind="judge", verdict_tokens=Fixed(tokens=64))


def test_orders_pair_the_same_lengths_differently():
    """Who meets which prompt and replica is luck; how much there is to do is not."""
    work = work_of(task_of(), {}, seed=0)
    assert len(work.orders) == 16
    totals = {int(order.response_tokens.sum()) for order in work.orders}
    assert len(totals) == 1
    assert not np.array_equal(work.orders[0].response_tokens, work.orders[1].response_tokens)
    assert work.sequences.total == int(work.orders[0].final_context.sum())


def test_the_seed_sets_the_order_and_nothing_else():
    """The same seed draws the same step."""
    first, again, other = (work_of(task_of(), {}, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.orders[0].response_tokens, again.orders[0].response_tokens)
    assert not np.array_equal(first.orders[0].response_tokens, other.orders[0].response_tokens)
    assert first.sequences.total == other.sequences.total


def test_work_without_responses_is_not_generated():
    """A reward model that trains on given samples has no rollout."""
    work = work_of(
        task_of(REFERENCE, work_per_step=msgspec.structs.replace(WORK, response_tokens=None)), {}, 0
    )
    assert work.orders == ()
    assert work.drawn is None
    assert work.sequences.total == 64 * 1024


def test_tool_waits_of_env_roles_are_passed_through_one_after_the_other():
    """A turn waits for each of them."""
    tools = [
        RoleSpec(id=name, kind="env", workers=4, cpu_cores_per_worker=1.0, host_memory_mib_per_worker=1.0,
                 tool_wait_s_per_turn=wait)
        for name, wait in (("web", 2.0), ("shell", 3.0))
    ]  # fmt: skip
    work = work_of(task_of(ROLLOUT, *tools, work_per_step=msgspec.structs.replace(WORK, turns=2)), {}, 0)
    assert {(order.turns, order.tool_wait_s) for order in work.orders} == {(2, 5.0)}


def test_a_judge_reads_the_whole_samples():
    """Its prompts are what the rollout was given and wrote, in the same orders."""
    work = work_of(task_of(ROLLOUT, JUDGE), {}, seed=0)
    verdicts = work.verdicts["judge"]
    assert len(verdicts) == len(work.orders)
    assert np.array_equal(verdicts[0].prompt_tokens, work.orders[0].final_context)
    assert set(verdicts[0].response_tokens.tolist()) == {64}


def test_lengths_ahead_move_the_mean_and_say_so():
    """Without a history nothing is foretold, and the plan says that."""
    growing = msgspec.structs.replace(WORK, history_tokens=tuple(1000.0 * 1.05**n for n in range(12)))
    ahead = work_of(task_of(work_per_step=growing), {}, 0, at_steps_ahead=5)
    assert ahead.sequences.total > work_of(task_of(), {}, 0).sequences.total
    assert ahead.stretch[0] < 1 < ahead.stretch[1]
    assert "a forecast" in ahead.notes[0]
    assert "no history_tokens" in work_of(task_of(), {}, 0, at_steps_ahead=5).notes[0]


@pytest.mark.parametrize("samples", [8, 1024])
def test_many_trajectories_need_fewer_orders(samples):
    """With many trajectories luck evens out within one order."""
    work = work_of(task_of(work_per_step=msgspec.structs.replace(WORK, samples=samples)), {}, 0)
    assert len(work.orders) == (16 if samples == 8 else 2)
