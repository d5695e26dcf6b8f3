"""Drafts ignore limits, and say by how much they break each."""

from __future__ import annotations

from dataclasses import replace

from random_problems import random_problem

from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.explain.relax import Relaxation, relaxed
from libra_plan.planner.explain.soft import drafts_of, without_ids


def alone(problem, task):
    """Return the problem of one task."""
    return replace(problem, tasks=(task,), running=())


def test_a_draft_that_breaks_nothing_is_a_configuration_of_the_task():
    """Otherwise a task that can run would be told to change its limits."""
    found = 0
    for problem in map(random_problem, range(12)):
        for task in problem.tasks:
            own = {each.phases for each in configurations_of(task, problem.cluster).configurations}
            for draft in drafts_of(alone(problem, task)):
                if not draft.relaxations:
                    assert draft.configuration.gpus >= task.min_gpus
                    assert task.max_gpus is None or draft.configuration.gpus <= task.max_gpus
            free = [draft for draft in drafts_of(alone(problem, task)) if draft.total == 0.0]
            found += bool(own) and bool(free)
    assert found > 5


def test_sizes_that_are_too_large_are_told_by_how_much():
    """The cost decides which way is proposed first."""
    problem = random_problem(3)
    task = replace(problem.tasks[0], max_gpus=1, min_gpus=0)
    for draft in drafts_of(alone(problem, task)):
        (limit,) = [each for each in draft.relaxations if each.code == "task-max"] or [None]
        if draft.configuration.gpus > 1:
            assert limit is not None
            assert limit.needed == draft.configuration.gpus
            assert limit.amount == draft.configuration.gpus - 1
            (changed,) = relaxed(alone(problem, task), [limit]).tasks
            assert changed.max_gpus == draft.configuration.gpus
        else:
            assert limit is None
        assert draft.rank[0] == sum(each.amount for each in draft.relaxations)


def test_dropped_names_are_gone_and_others_stay():
    """Only what a way names may change."""
    gpus = frozenset(random_problem(3).cluster.gpus)
    task = random_problem(3).tasks[0]
    roles = tuple(replace(role, pinned_gpus=gpus, excluded_gpus=gpus) for role in task.roles)
    bound = replace(task, roles=roles)
    first = roles[0].id
    freed = without_ids(bound, [Relaxation("pin", task.id, first, 1.0, 0.0, 1.0)])
    assert freed.roles[0].pinned_gpus == frozenset()
    assert freed.roles[0].excluded_gpus == gpus
    assert freed.roles[1:] == bound.roles[1:]
    assert without_ids(bound, ()) == bound
