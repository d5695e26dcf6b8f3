"""Batch steps: the next micro-batch is proposed where it fits and saves time, and kept once taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from loops import running_best

from libra_plan.errors import StateError
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.controller.batch_steps import (
    BATCHES,
    keep_steps,
    proposed_steps,
    steps_in_effect,
    with_steps,
)
from libra_plan.planner.controller.hysteresis import TrustPolicy
from libra_plan.planner.pricing import price_workload
from libra_plan.planner.problem import Problem
from libra_plan.planner.telemetry.observations import BatchStep
from libra_plan.profiles.catalog import ProfilesFolder, load_folder, load_profile, shipped_folder
from libra_plan.profiles.schema import Fixed, RoleSpec, TaskSpec, WorkloadFile, WorkSpec

NAME = "h200-qwen2.5-0.5b-train"
GIB = 1024.0


def workload(tokens: int | None = 2048) -> WorkloadFile:
    role = RoleSpec(id="rm", kind="reward_train", profiles=(NAME,), micro_batch_tokens=tokens)
    task = TaskSpec(
        id="t", work_per_step=WorkSpec(samples=256, prompt_tokens=Fixed(tokens=1024)), roles=(role,)
    )
    return WorkloadFile(schema_version=1, tasks=(task,))


@pytest.fixture(scope="module")
def priced():
    """Price workloads on two H200, by the shipped profile."""
    profile = load_profile(shipped_folder() / NAME)
    whole = load_folder(shipped_folder())
    gpus = tuple(Gpu(GpuId("n", at), "h200_sxm", 140 * GIB) for at in range(2))
    cluster = Cluster("c", (Node("n", gpus),))

    def made(given: WorkloadFile) -> Problem:
        folder: ProfilesFolder = replace(whole, workload=given, profiles={NAME: profile})
        return price_workload(folder, cluster)

    return made


def propose(priced, given: WorkloadFile, room_mib: float, trust: TrustPolicy | None = None):
    problem = running_best(priced(given))
    rooms = dict.fromkeys(problem.cluster.gpus, room_mib)
    return problem, list(proposed_steps(problem, given, rooms, priced, trust or TrustPolicy()))


def test_a_larger_micro_batch_that_fits_and_saves_is_proposed(priced):
    """The cheapest rung of the ladder needs somebody who says what could be stepped."""
    problem, (step,) = propose(priced, workload(), 130 * GIB)
    assert (step.task, step.role, step.setting) == ("t", "rm", "micro_batch_tokens")
    assert (step.before, step.after) == (2048.0, 4096.0)
    held = problem.running[0].roles[0]
    now, then = (
        next(o.time_s.value for o in each.tasks[0].roles[0].options if o.replicas == len(held.replicas))
        for each in (problem, priced(workload(4096)))
    )
    assert 0.0 < step.saves <= 1.0 - then / now


def test_what_others_hold_on_a_gpu_is_no_room(priced):
    """A step into memory that is not there ends in the crash it was meant to avoid."""
    problem, steps = propose(priced, workload(), 130 * GIB)
    need = next(o.peak_mib for o in priced(workload(4096)).tasks[0].roles[0].options)
    assert steps
    rooms = dict.fromkeys(problem.cluster.gpus, 130 * GIB)
    for room in (need, 0.5 * need):  # a tenth more than it needs must be there
        rooms[next(iter(rooms))] = room
        assert list(proposed_steps(problem, workload(), rooms, priced, TrustPolicy())) == []


def test_an_unknown_room_is_none(priced):
    """A GPU that nobody reads may be full."""
    problem = running_best(priced(workload()))
    known = dict.fromkeys(list(problem.cluster.gpus)[:1], 130 * GIB)
    assert list(proposed_steps(problem, workload(), known, priced, TrustPolicy())) == []


def test_a_setting_that_is_not_stated_is_not_stepped(priced):
    """Then whole batches are priced, and there is nothing to set."""
    assert propose(priced, workload(None), 130 * GIB)[1] == []


def step(before: float, after: float) -> BatchStep:
    return BatchStep("t", "rm", "micro_batch_tokens", before, after, 0.1)


def test_steps_add_up_and_hold_until_the_workload_says_otherwise(tmp_path: Path):
    """Proposed again at every look, a step that was taken would never let another rung be reached."""
    assert steps_in_effect(tmp_path) == ()
    keep_steps(tmp_path, [step(2048, 4096)])
    keep_steps(tmp_path, [step(4096, 8192), BatchStep("u", "rm", "micro_batch_tokens", 1, 2, 0.1)])
    taken = steps_in_effect(tmp_path)
    assert [(each.task, each.before, each.after) for each in taken] == [("t", 2048, 8192), ("u", 1, 2)]
    assert with_steps(workload(2048), taken) == workload(8192)
    assert with_steps(workload(3000), taken) == workload(3000)


def test_a_file_that_cannot_be_read_is_refused_with_a_way_out(tmp_path: Path):
    """A guess would price another run than the one there is."""
    (tmp_path / BATCHES).write_text("[{}]")
    with pytest.raises(StateError, match="remove it"):
        steps_in_effect(tmp_path)
