"""The greedy split looks at few steps; it must be the one that looks at all of them each time."""

from __future__ import annotations

import numpy as np
import pytest
from random_problems import random_problem

from libra_plan.planner.optimize.baselines import greedy, keeps_all
from libra_plan.planner.optimize.constraints import Choice, Constraint, base_constraints
from libra_plan.planner.optimize.objective import TaskCandidates, candidates_of


def _plainly(tasks: list[TaskCandidates], rows: list[Constraint], begin: Choice) -> Choice:
    """Take the step of most worth per further GPU that fits, the first of equals, until there is none."""
    now = dict(begin)
    while True:
        best, step = 0.0, None
        for t, each in enumerate(tasks):
            had = each.candidates[now[t]] if t in now else None
            for c, entry in enumerate(each.candidates):
                gain = entry.value - (had.value if had else 0.0)
                more = float(entry.configuration.gpus) - (float(had.configuration.gpus) if had else 0.0)
                rate = gain / max(more, 1e-3)
                if gain > 1e-12 and rate > best and keeps_all(rows, {**now, t: c}):
                    best, step = rate, (t, c)
        if step is None:
            return now
        now[step[0]] = step[1]


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_greedy_takes_the_best_step_each_time(first: int) -> None:
    """On whatever binds, and beside tasks that earlier tiers have settled."""
    for seed in range(first, first + 40):
        problem = random_problem(seed)
        tasks = candidates_of(problem, problem)
        rows = base_constraints(tasks, problem.cluster)
        begin: Choice = {}
        if seed % 3 == 0 and tasks[0].candidates:
            begin = {0: int(np.random.default_rng(seed).integers(len(tasks[0].candidates)))}
        assert greedy(tasks, rows, begin) == _plainly(tasks, rows, begin), seed
