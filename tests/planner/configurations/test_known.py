"""Tables that are built once for alike tasks."""

from __future__ import annotations

from dataclasses import replace

from random_problems import random_problem

from libra_plan.planner.configurations.known import KnownConfigurations


def test_alike_tasks_share_a_table_and_others_do_not() -> None:
    """Name and weight do not matter; a limit on GPUs does, and so does whether hosts may bind."""
    problem = random_problem(5000)
    known, task = KnownConfigurations(), problem.tasks[0]
    first = known.of(task, problem.cluster, hosts_bind=False)
    other = known.of(replace(task, id="other", weight=9.0), problem.cluster, hosts_bind=False)
    assert other.counts is first.counts
    assert other.task.id == "other"
    limited = known.of(replace(task, max_gpus=1), problem.cluster, hosts_bind=False)
    assert limited.counts is not first.counts
    assert (limited.gpus <= 1).all()
    assert known.of(task, problem.cluster, hosts_bind=True).counts is not first.counts
    assert known.rooms(problem.cluster) is known.rooms(problem.cluster)
