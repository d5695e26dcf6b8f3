"""Decode costs from windows that state sequences at once and mean context."""

import pytest
from sim_worlds import DECODE, make_task, make_world

from libra_plan.errors import WorkloadError
from libra_plan.planner.simulate.fit.evidence import DecodeSeen, FitFindings, StageSeen, TaskSeen
from libra_plan.planner.simulate.fit.rollouts import fit_rollout


def step_s(sequences, context):
    """Return the base's decode step."""
    return DECODE.fixed_s + DECODE.per_sequence_s * sequences + DECODE.per_token_s * sequences * context


def test_windows_of_decode_steps_give_the_factor_also_of_an_async_task():
    """An engine that is 1.25 times as slow at any load is seen to be."""
    windows = [
        DecodeSeen(1, b, c, 1000.0 * b, 1.25 * 1000.0 * step_s(b, c), None)
        for b, c in ((8, 500), (16, 700), (32, 900), (64, 1100))
        for _ in range(2)
    ]
    task = make_task(coupling="async", staleness=1, arrangements=("separate",))
    found = FitFindings()
    (decode,) = fit_rollout(make_world(task), task, TaskSeen(decode=windows), found)
    assert decode.fixed_s == pytest.approx(1.25 * DECODE.fixed_s)
    assert decode.kv_tokens == DECODE.kv_tokens
    assert found.figures[0].samples == 8
    assert found.figures[0].low == pytest.approx(1.25)


def test_replicas_of_a_size_without_costs_are_refused():
    """Costs of another tp would be a guess."""
    rows = [StageSeen(step, 10.0, None, (4, 4)) for step in range(10)]
    task = make_task()
    with pytest.raises(WorkloadError, match="no costs for"):
        fit_rollout(make_world(task), task, TaskSeen(stages={"rollout": rows}), FitFindings())
