"""Lengths, turns and tools: what is fitted, what stays the base's with the reason, and what is doubted."""

import numpy as np
import pytest
from sim_worlds import Tools, make_task

from libra_plan.planner.simulate.fit.evidence import FitFindings, TaskSeen, TrajectorySeen
from libra_plan.planner.simulate.fit.lengths import fit_work

RNG = np.random.default_rng(7)


def fitted(seen, **more):
    """Fit the work of a task, and map what was found and kept."""
    found = FitFindings()
    task = fit_work(make_task(**more), seen, found)
    return task, {each.key: each for each in found.figures}, dict(found.assumed), found.doubts


def log_normal(median, sigma, count):
    """Draw lengths in tokens."""
    return np.maximum(1, RNG.lognormal(np.log(median), sigma, count)).astype(int).tolist()


def test_without_evidence_all_stays_the_bases_with_the_reason():
    """A figure that nobody measured must not look as if somebody had."""
    task, figures, kept, _ = fitted(TaskSeen())
    assert task == make_task()
    assert figures == {}
    assert {"rl.samples", "rl.responses.sigma", "rl.prompts", "rl.turns", "rl.tools"} <= set(kept)
    assert kept["rl.samples"] == "0 steps tell theirs, 8 are the least"


def test_lengths_and_prompts_of_trajectories_give_their_laws_back():
    """Sigma and mean are what another seed of the world would be drawn with."""
    pairs = zip(log_normal(600, 0.5, 2000), log_normal(200, 0.3, 2000), strict=True)
    seen = TaskSeen(trajectories=[TrajectorySeen(length, prompt) for length, prompt in pairs])
    task, figures, kept, doubts = fitted(seen)
    assert task.responses.sigma == pytest.approx(0.5, rel=0.05)
    assert task.responses.first_mean_tokens == pytest.approx(600 * np.exp(0.125), rel=0.05)
    assert task.prompts.median_tokens == pytest.approx(200, rel=0.05)
    assert figures["rl.responses.sigma"].low < 0.5 < figures["rl.responses.sigma"].high
    assert "rl.responses: no drift" in kept
    assert doubts == []


def test_a_drift_is_one_factor_a_step():
    """Means that double over forty steps are a drift; those that only scatter are none."""
    rising = TaskSeen(responses=[(step, 500.0 * 2 ** (step / 40)) for step in range(41)], source="log")
    task, figures, _, _ = fitted(rising)
    assert task.responses.last_mean_tokens / task.responses.first_mean_tokens == pytest.approx(2.0, rel=0.02)
    assert figures["rl.responses: last ÷ first mean"].of == "steps of log"
    still = TaskSeen(responses=[(step, 500.0 * (1.05 if step % 2 else 0.95)) for step in range(40)])
    task, _, kept, _ = fitted(still)
    assert task.responses.last_mean_tokens is None
    assert "noise explains" in kept["rl.responses: no drift"]


def test_tool_calls_wait_as_long_per_turn_as_they_did():
    """A world has one call after each turn; turns without a call count as no waiting."""
    seen = TaskSeen(
        trajectories=[TrajectorySeen(500, turns=4, tool_s=(3.0, 5.0, 0.0, 0.0)) for _ in range(100)]
    )
    task, figures, kept, _ = fitted(seen, tools=Tools(mean_s=9.0, on_workers=True))
    assert task.turns == 4
    assert task.tools.mean_s == pytest.approx(2.0)
    assert task.tools.on_workers
    assert figures["rl.tools.mean_s"].samples == 200
    assert "rl.tools.on_workers true" in kept


def test_lengths_beyond_the_bases_cut_raise_it_and_are_doubted():
    """The cut is a setting of the framework: a recording that passes it shows another one."""
    seen = TaskSeen(trajectories=[TrajectorySeen(length) for length in log_normal(3000, 1.0, 500)])
    task, _, _, doubts = fitted(seen)
    assert task.responses.max_tokens > 8000
    assert any("it was raised" in doubt for doubt in doubts)
