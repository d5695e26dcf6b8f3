"""What a task of the workload says arrives in the priced problem."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import pytest
from affine_profile import profile_file
from hypothesis import given
from hypothesis import strategies as st
from pricing_cases import H200, REFERENCE, ROLLOUT, WORK, affine_fits, folder_of, price_of, role_of, task_of

from libra_plan.errors import ClusterError, WorkloadError
from libra_plan.models.corrections import Correction, CorrectionsFile, RoleCorrection, with_observation
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import GpuId
from libra_plan.planner.pricing import corrected_role, price_workload
from libra_plan.planner.problem import Deadline, Policy, Quota, Role, StageOption
from libra_plan.profiles.schema import (
    DeadlineSpec,
    Fixed,
    QuotaSpec,
    RoleSpec,
    Trace,
    WorkSpec,
)
from libra_plan.profiles.tool_wait import tool_wait_of


def ahead(history, law=None, **changes):
    fields = {"history_tokens": tuple(history)}
    if law is not None:
        fields["response_tokens"] = law
    return task_of(work_per_step=msgspec.structs.replace(WORK, **fields), **changes)


def ahead_price(task, steps):
    folder = folder_of(task)
    return price_workload(folder, H200, fits=affine_fits(folder), at_steps_ahead=steps)


def test_task_fields_are_carried_over():
    """Weight, limits, policy, horizon and digests reach the problem unchanged."""
    folder = folder_of(task_of(weight=2.5, min_gpus=2, max_gpus=6, arrangements=("colocated",)))
    problem = price_workload(folder, H200, policy=Policy.MAX_MIN, fits=affine_fits(folder))
    (task,) = problem.tasks
    assert (task.weight, task.min_gpus, task.max_gpus) == (2.5, 2, 6)
    assert {each.value for each in task.arrangements} == {"colocated"}
    assert (problem.policy, problem.horizon_s) == (Policy.MAX_MIN, 3600.0)
    assert problem.input_digests == {"workload.yaml": "ab" * 32}


def test_what_policies_read_is_carried_over():
    """Tiers, teams, deadlines, waiting and quotas reach the problem, rates per second."""
    asks = {"tier": 2, "team": "red", "deadline": DeadlineSpec(steps=10, within_s=60), "waited_s": 30.0}
    folder = folder_of(task_of(min_steps_per_hour=7200.0, latency_first=True, **asks))
    quotas = {"red": QuotaSpec(gpus=4, gpus_of_class={"h200_sxm": 2})}
    workload = msgspec.structs.replace(folder.workload, quotas=quotas, aging_s=600.0)
    problem = price_workload(
        replace(folder, workload=workload), H200, fits=affine_fits(folder), budget_per_hour=9.0
    )
    (task,) = problem.tasks
    assert (task.tier, task.team, task.deadline, task.waited_s) == (2, "red", Deadline(10, 60), 30.0)
    assert (task.min_steps_per_s, task.latency_first) == (2.0, True)
    assert problem.quotas == (Quota("red", 4, (("h200_sxm", 2),)),)
    assert (problem.budget_per_hour, problem.aging_s) == (9.0, 600.0)


def test_samples_and_tokens_per_step_are_totals():
    """Tokens count prompt and response of every sample, once."""
    (task,) = price_of(
        task_of(work_per_step=msgspec.structs.replace(WORK, response_tokens=Fixed(tokens=100)))
    ).tasks
    assert task.samples_per_step == 64
    assert task.tokens_per_step == 64 * 1124


def test_env_becomes_cpu_workers():
    """A CPU role holds no GPU and asks for cores and memory of all its workers."""
    env = RoleSpec(
        id="env", kind="env", workers=10, cpu_cores_per_worker=0.5, host_memory_mib_per_worker=1024,
        tool_wait_s_per_turn=2.0,
    )  # fmt: skip
    role = role_of(price_of(task_of(ROLLOUT, env)), "env")
    assert not role.on_gpu
    assert (role.cpu_workers, role.cpu_cores, role.host_memory_mib) == (10, 5.0, 10_240.0)


def test_tool_waits_of_env_slow_the_rollout_only():
    """The rollout of the same task waits turns × seconds at most, and no less than one trajectory's own."""
    env = RoleSpec(
        id="env", kind="env", workers=1, cpu_cores_per_worker=1, host_memory_mib_per_worker=1,
        tool_wait_s_per_turn=2.0,
    )  # fmt: skip
    files = [profile_file("decode", flags={"prefix_caching": True}), profile_file("score")]
    work = msgspec.structs.replace(WORK, turns=5)
    plain = role_of(price_of(task_of(ROLLOUT, work_per_step=work), files=files)).options
    waits = role_of(price_of(task_of(ROLLOUT, env, work_per_step=work), files=files)).options
    for without, with_waits in zip(plain, waits, strict=True):
        assert without.time_s.value < with_waits.time_s.value
    # with all admitted at once the waits add at most their own 10 s
    assert waits[-1].time_s.value <= plain[-1].time_s.value + 10.0 + 1e-6


def test_waits_of_several_tools_add_up():
    """A turn passes through every env role: means and variances add, and one alone stays what it is."""
    one = RoleSpec(id="a", kind="env", tool_wait_s_per_turn=3.0, tool_wait_sigma=1.2)
    two = RoleSpec(id="b", kind="env", tool_wait_s_per_turn=1.0)
    assert tool_wait_of([one]) == pytest.approx((3.0, 1.2))
    mean, sigma = tool_wait_of([one, two])
    assert mean == 4.0
    assert mean**2 * math.expm1(sigma**2) == pytest.approx(9.0 * math.expm1(1.2**2))


def test_pinned_and_excluded_gpus_are_resolved_and_priced():
    """Pinned GPUs fix the count, so only that option is priced."""
    role = msgspec.structs.replace(
        ROLLOUT, pinned_gpus=("node0:1", "node0:2", "node0:5"), excluded_gpus=("node0:7",)
    )
    priced = role_of(price_of(task_of(role)))
    assert [option.gpus for option in priced.options] == [3]
    assert priced.pinned_gpus == {GpuId("node0", index) for index in (1, 2, 5)}
    assert priced.excluded_gpus == {GpuId("node0", 7)}


def test_pinning_a_gpu_that_is_not_there_is_an_error():
    """A typo in a pinned GPU must not turn into a free placement."""
    with pytest.raises(ClusterError, match="node0:9"):
        price_of(task_of(msgspec.structs.replace(ROLLOUT, pinned_gpus=("node0:9",))))


def test_traces_are_read_beside_the_workload(tmp_path):
    """A trace file is part of the work; its lengths decide the tokens."""
    (tmp_path / "lengths.txt").write_text("100\n200\n300\n", encoding="utf-8")
    work = WorkSpec(samples=3, prompt_tokens=Trace(file="lengths.txt"))
    (task,) = price_of(task_of(REFERENCE, work_per_step=work), path=tmp_path).tasks
    assert task.tokens_per_step == 600


def test_a_folder_without_workload_cannot_be_priced():
    """Profiles alone say what things cost, not what is to be done."""
    with pytest.raises(WorkloadError, match=r"workload\.yaml"):
        price_workload(replace(folder_of(), workload=None), H200)


def test_prices_ahead_follow_the_history_of_lengths():
    """Responses that grow 2 % a step make the step 20 ahead dearer, and less sure, than the one now."""
    task = ahead([1000 * 1.02**step for step in range(40)], Fixed(tokens=2165))
    now, later = (role_of(ahead_price(task, steps)).options[0] for steps in (0, 20))
    stated = role_of(price_of(task)).options[0]
    assert now.time_s.value == pytest.approx(stated.time_s.value, rel=0.03)
    assert 1.3 < later.time_s.value / now.time_s.value < 1.8
    assert later.time_s.high / later.time_s.value > now.time_s.high / now.time_s.value
    assert any("20 steps ahead" in note and "forecast" in note for note in later.notes)
    for name in ("reference", "actor"):
        first, last = (role_of(ahead_price(task, steps), name).options[0] for steps in (0, 20))
        assert last.time_s.value > 1.1 * first.time_s.value


def test_prices_ahead_without_a_history_say_so():
    """Nothing is made up: the lengths stay as stated, with a remark."""
    option = role_of(ahead_price(task_of(), 5)).options[0]
    assert option.time_s == role_of(price_of(task_of())).options[0].time_s
    assert any("no history_tokens" in note for note in option.notes)


def test_a_short_history_is_refused_with_what_is_needed():
    """Three steps are no trend."""
    with pytest.raises(WorkloadError, match="at least 6"):
        ahead_price(ahead([1000, 1010, 1020]), 2)


def option(origin=Origin.MEASURED, *, tp=1, gpu_class="h200_sxm"):
    time_s = Estimate(10.0, 9.0, 11.0, "s", origin)
    return StageOption(gpu_class, Layout(tp=tp), 1, time_s, 1.0, 1.0, 1.0, 1.0, None, None, ("as before",))


def file_of(factor=1.5, **more):
    state = Correction()
    for _ in range(10):
        state = with_observation(state, factor, 1.0)
    given = {
        "task": "t",
        "role": "r",
        "basis": "step",
        "profile": "p",
        "gpu_class": "h200_sxm",
        "state": state,
    }
    return CorrectionsFile(1, (RoleCorrection(**given | more),))


def corrected(*options, corrections, task="t", profiles=("p", "q")):
    return corrected_role(Role("r", "actor_train", options), task, profiles, corrections).options


def test_measured_options_are_multiplied_and_say_so():
    """A plan must tell where its numbers come from."""
    (only,) = corrected(option(), corrections=file_of())
    assert only.time_s.value == pytest.approx(15.0)
    assert only.notes[0] == "as before"
    assert "corrected × 1.500" in only.notes[1]
    assert "10 windows" in only.notes[1]


def test_options_outside_what_was_measured_are_corrected_and_say_that_it_was_not_seen_there():
    """A role seen to be slow must not flee to the options that nobody has seen."""
    (only,) = corrected(option(Origin.EXTRAPOLATED), corrections=file_of())
    assert (only.time_s.value, only.time_s.origin) == (pytest.approx(15.0), Origin.EXTRAPOLATED)
    assert only.time_s.low == 9.0
    assert "corrected × 1.500" in only.notes[1]
    assert "extrapolated" in only.notes[2]


@given(st.floats(0.2, 5.0), st.lists(st.sampled_from(Origin), min_size=2, max_size=6))
def test_a_correction_changes_no_order_among_a_roles_options(factor, origins):
    """The factor says how slow the role is, not which number of GPUs suits it."""
    before = [option(origin) for origin in origins]
    after = corrected(*before, corrections=file_of(factor))
    assert [b.time_s.value / a.time_s.value for a, b in zip(before, after, strict=True)] == pytest.approx(
        [factor] * len(before)
    )


@pytest.mark.parametrize(
    "other",
    [
        {"task": "other"},
        {"role": "other"},
        {"profile": "other"},
        {"gpu_class": "a100_sxm"},
        {"state": Correction()},
    ],
)
def test_what_was_observed_of_something_else_corrects_nothing(other):
    """Another task, role, profile or GPU class, or too few windows."""
    assert corrected(option(), corrections=file_of(**other)) == (option(),)


def test_no_corrections_change_nothing():
    """Most plans have none."""
    assert corrected(option(), corrections=None) == (option(),)


def test_a_seat_on_a_shared_gpu_is_of_its_class():
    """Half a GPU is of the class it is half of."""
    (only,) = corrected(option(gpu_class="h200_sxm.seat"), corrections=file_of())
    assert only.time_s.value == pytest.approx(15.0)


def test_equal_tasks_are_priced_once():
    """Hundreds of tasks of one kind ask the cost models as often as one; prices are those of each alone."""
    asked = []
    for ids in (("a",), ("a", "b", "c")):
        tasks = [task_of(id=name, weight=1.0 + at, max_gpus=4 + at) for at, name in enumerate(ids)]
        folder = folder_of(*tasks)
        fits = affine_fits(folder)
        problem = price_workload(folder, H200, fits=fits)
        asked.append(sum(len(fit.asked) for fit in fits.values()))
        assert [(task.id, task.weight, task.max_gpus) for task in problem.tasks] == [
            (task.id, task.weight, task.max_gpus) for task in tasks
        ]
        assert all(task.roles == problem.tasks[0].roles for task in problem.tasks)
    assert asked[0] == asked[1] > 0


def test_tasks_of_other_lengths_or_limits_are_priced_apart():
    """What prices depend on is not only the profile."""
    longer = msgspec.structs.replace(WORK, response_tokens=Fixed(tokens=200))
    few = msgspec.structs.replace(REFERENCE, max_gpus=2)
    tasks = [task_of(id="a"), task_of(id="b", work_per_step=longer), task_of(ROLLOUT, few, id="c")]
    one, two, three = price_of(*tasks).tasks
    assert one.roles[0].options[0].time_s != two.roles[0].options[0].time_s
    assert max(o.gpus for o in three.roles[1].options) == 2 < max(o.gpus for o in one.roles[1].options)
