"""A role that offloads state: GPU memory against host memory and seconds, and never unasked."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from affine_profile import profile_file
from pricing_cases import affine_fits

from libra_plan.models.clusters import uniform_cluster
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.pricing import price_workload
from libra_plan.planner.problem import Problem
from libra_plan.planner.verify import violations_of
from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder
from libra_plan.profiles.schema import (
    Fixed,
    MeasuredSpread,
    Point,
    RoleSpec,
    SwitchingFile,
    TaskSpec,
    WorkloadFile,
    WorkSpec,
)

POINTS = tuple(
    Point(batch_sequences=batch, seq_len_tokens=length, time_s=1.0)
    for batch, length in ((1, 512), (32, 512), (4, 8192), (1, 32768))
)
RATE = MeasuredSpread(typical=51.0, low=51.0, high=51.0, p90=51.0, n=4)
SWITCHING = SwitchingFile(
    schema_version=1,
    gpu_class="h200_sxm",
    start_s=RATE,
    save_gib_per_s=RATE,
    load_gib_per_s=RATE,
    pinned_host_gib_per_s=RATE,
    kind="measured",
)
STATIC_MIB = 118_000.0  # with the gradients that stand while later micro-batches peak it just fits


def problem_of(offload, *, allow_prior=True, flags=None, host_memory_mib=2e6):
    role = RoleSpec(id="reward-model", kind="reward_train", profiles=("h200-sxm-train",), offload=offload)
    task = TaskSpec(
        id="t", work_per_step=WorkSpec(samples=64, prompt_tokens=Fixed(tokens=1024)), roles=(role,)
    )
    file = profile_file("train")
    file = msgspec.structs.replace(file, software=msgspec.structs.replace(file.software, flags=flags or {}))
    folder = ProfilesFolder(
        Path(),
        WorkloadFile(schema_version=1, tasks=(task,)),
        None,
        {file.id: LoadedProfile(file, POINTS, Path())},
        {"h200_sxm": SWITCHING},
        {"workload.yaml": "ab" * 32},
    )
    cluster = uniform_cluster(8, "h200_sxm", 143_155.9)
    nodes = tuple(replace(node, host_memory_mib=host_memory_mib) for node in cluster.nodes)
    cluster = replace(cluster, nodes=nodes)
    fits = affine_fits(folder, static=STATIC_MIB)
    return price_workload(folder, cluster, fits=fits, allow_prior=allow_prior)


def options_of(problem: Problem):
    return problem.tasks[0].roles[0].options


def test_offload_trades_gpu_memory_for_host_memory_and_seconds():
    """The one reason to choose it, and its two prices."""
    plain, relieved = options_of(problem_of(()))[0], options_of(problem_of(("optimizer",)))[0]
    assert relieved.peak_mib < plain.peak_mib
    assert relieved.offloaded_host_mib > 0.0 == plain.offloaded_host_mib
    assert relieved.time_s.value > plain.time_s.value
    assert relieved.time_s.origin.value == "assumed"
    assert any("host memory: assumed" in note for note in relieved.notes)


def test_offload_that_was_not_measured_needs_leave_to_guess():
    """Without --allow-prior every number of a plan rests on measurements."""
    problem = problem_of(("optimizer",), allow_prior=False)
    assert options_of(problem) == ()
    assert "not measured with optimizer in host memory" in problem.tasks[0].roles[0].refusals[0]


def test_a_profile_measured_with_offload_takes_host_memory_and_nothing_else():
    """Its points hold the transfer already; the host's share is all that was left out."""
    plain = options_of(problem_of((), allow_prior=False))[0]
    for asked in ((), ("optimizer",)):
        found = options_of(problem_of(asked, allow_prior=False, flags={"offload": "optimizer"}))[0]
        assert (found.peak_mib, found.time_s) == (plain.peak_mib, plain.time_s)
        assert found.offloaded_host_mib > 0
    assert options_of(problem_of(("parameters",), flags={"offload": "optimizer"})) == ()


def test_a_plan_with_offload_verifies_and_keeps_to_the_nodes_host_memory():
    """Host memory is a planned resource: where it is short fewer ranks run."""
    problem = problem_of(("optimizer", "parameters"))
    each = options_of(problem)[0].offloaded_host_mib
    for host_mib, most in ((2e6, 8), (2.5 * each, 2)):
        problem = problem_of(("optimizer", "parameters"), host_memory_mib=host_mib)
        plan = solve_problem(problem).plan
        assert violations_of(problem, plan) == []
        (running,) = plan.running
        assert running.configuration.gpus == most
        (pool,) = running.configuration.phases[0].pools
        assert pool.host_memory_mib_per_gpu == pytest.approx(each)
