"""From a workload and its profiles to the priced problem."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from affine_profile import AffineProfile, profile_file

from libra_plan.errors import ClusterError, WorkloadError
from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.fit import Query, fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.columns import columns_of
from libra_plan.planner.pricing import price
from libra_plan.planner.pricing.replicas import replica_counts
from libra_plan.planner.pricing.switching import weight_gib
from libra_plan.planner.problem import CouplingKind, Deadline, Policy, Quota
from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder, load_folder, shipped_folder
from libra_plan.profiles.schema import (
    CouplingSpec,
    DeadlineSpec,
    Fixed,
    LayoutSpec,
    LifecycleSpec,
    LogNormal,
    Point,
    QuotaSpec,
    RoleSpec,
    Spread,
    SwitchingFile,
    TaskSpec,
    Trace,
    WorkloadFile,
    WorkSpec,
)

POINTS = tuple(
    Point(batch_sequences=batch, seq_len_tokens=length, time_s=1.0)
    for batch, length in ((1, 512), (32, 512), (4, 8192), (1, 32768))
)
ROLLOUT = RoleSpec(id="rollout", kind="rollout", profiles=("h200-sxm-decode", "h200-sxm-score"))
REFERENCE = RoleSpec(id="reference", kind="reference", profiles=("h200-sxm-score",))
ACTOR = RoleSpec(id="actor", kind="actor_train", profiles=("h200-sxm-train",))
WORK = WorkSpec(
    samples=64,
    prompt_tokens=Fixed(tokens=1024),
    response_tokens=LogNormal(median_tokens=1000, sigma=1.0, max_tokens=16_000),
)
H200 = uniform_cluster(8, "h200_sxm", 143_155.9)


def spread(value):
    return Spread(typical=value, low=value, high=value, p90=value, n=3)


SWITCHING = SwitchingFile(
    schema_version=1,
    gpu_class="h200_sxm",
    start_s=spread(8.0),
    save_gib_per_s=spread(0.75),
    load_gib_per_s=spread(4.0),
    pinned_host_gib_per_s=spread(51.0),
    kind="measured",
)


def task_of(*roles, **changes):
    fields = {"id": "t", "work_per_step": WORK, "roles": roles or (ROLLOUT, REFERENCE, ACTOR), **changes}
    return TaskSpec(**fields)


def folder_of(*tasks, files=None, points=POINTS, switching=True, path=Path()):
    files = files or [profile_file(phase) for phase in ("decode", "score", "train")]
    return ProfilesFolder(
        path,
        WorkloadFile(schema_version=1, tasks=tasks or (task_of(),)),
        None,
        {file.id: LoadedProfile(file, points, path) for file in files},
        {"h200_sxm": SWITCHING} if switching else {},
        {"workload.yaml": "ab" * 32},
    )


def price_of(*tasks, cluster=H200, fields=None, **folder_fields):
    """Price with affine profiles; `fields` sets their coefficients."""
    folder = folder_of(*tasks, **folder_fields)
    return price(folder, cluster, fit=lambda loaded: AffineProfile(loaded.file, **(fields or {})))


def role_of(problem, name="rollout"):
    return next(role for role in problem.tasks[0].roles if role.id == name)


@pytest.fixture(scope="module")
def shipped():
    """Give the shipped folder with its fits, made once."""
    folder = load_folder(shipped_folder())
    named = {name for task in folder.workload.tasks for role in task.roles for name in role.profiles}
    fits = {name: fit_profile(folder.profiles[name].file, folder.profiles[name].points) for name in named}
    return folder, lambda loaded: fits[loaded.file.id]


# ---------------------------------------------------------------- the shipped workload


def test_the_shipped_workload_prices_every_role_on_one_node(shipped):
    """Out of the box every GPU role has an option for 1 to 8 GPUs, and nothing was refused."""
    folder, fit = shipped
    problem = price(folder, H200, fit=fit)
    for task in problem.tasks:
        for role in task.gpu_roles:
            assert [option.gpus for option in role.options] == list(range(1, 9)), (task.id, role.refusals)
            assert role.refusals == ()


def test_shipped_options_fit_and_say_where_their_numbers_come_from(shipped):
    """Peak ≥ static ≥ asleep > 0, inside the GPU's memory, with bounds around the time."""
    folder, fit = shipped
    for task in price(folder, H200, fit=fit).tasks:
        for option in (option for role in task.gpu_roles for option in role.options):
            assert 143_155.9 >= option.peak_mib >= option.static_mib > option.asleep_mib > 700
            assert option.time_s.low < option.time_s.value < option.time_s.high
            assert option.host_static_mib == pytest.approx(option.static_mib - option.asleep_mib)
            assert option.sleep_s == pytest.approx(option.host_static_mib / 1024 / 51.3, rel=1e-3)


def test_more_gpus_do_not_slow_a_shipped_role_beyond_luck(shipped):
    """Averaged over orders, times fall with replicas up to the luck of who meets the longest."""
    folder, fit = shipped
    for task in price(folder, H200, fit=fit).tasks:
        for role in task.gpu_roles:
            times = [option.time_s.value for option in role.options]
            assert all(later < 1.05 * earlier for earlier, later in pairwise(times))
            assert times[-1] < 0.75 * times[0]


def test_the_same_inputs_give_the_same_problem(shipped):
    """Pricing has no hidden randomness: a second run is equal, another seed is not."""
    folder, fit = shipped
    assert price(folder, H200, fit=fit) == price(folder, H200, fit=fit)
    assert price(folder, H200, fit=fit).tasks != price(folder, H200, fit=fit, seed=1).tasks


def test_shipped_restart_is_start_save_and_load(shipped):
    """The agent task saves and loads the actor's state and loads two sets of 7B weights."""
    folder, fit = shipped
    task = price(folder, H200, fit=fit).task_of["agent-7b"]
    actor = next(role for role in task.roles if role.id == "actor").options[0].host_static_mib / 1024
    weights = 2 * 7_615_616_512 * 2 / 2**30
    expected = 8.32 + actor / 0.7567 + (actor + weights) / 3.9346
    assert task.restart_s == pytest.approx(expected, rel=1e-3)


# ---------------------------------------------------------------- tasks


def test_task_fields_are_carried_over():
    """Weight, limits, policy, horizon and digests reach the problem unchanged."""
    folder = folder_of(task_of(weight=2.5, min_gpus=2, max_gpus=6, arrangements=("colocated",)))
    problem = price(folder, H200, policy=Policy.MAX_MIN, fit=lambda loaded: AffineProfile(loaded.file))
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
    fit = lambda loaded: AffineProfile(loaded.file)  # noqa: E731
    problem = price(replace(folder, workload=workload), H200, fit=fit, budget_per_hour=9.0)
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


def test_weights_are_handed_over_only_when_something_trains():
    """An evaluation has no training, so nothing is synchronised."""
    (training,) = price_of(task_of()).tasks
    (evaluation,) = price_of(task_of(ROLLOUT, REFERENCE)).tasks
    assert training.sync_s == pytest.approx(7_615_616_512 * 2 / 2**30 / 365.0)
    assert evaluation.sync_s == 0.0


def test_unknown_link_between_nodes_hands_weights_over_by_checkpoint():
    """Unknown is not free: the weights go through the file system at its measured pace."""
    cluster = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    (task,) = price_of(task_of(), cluster=cluster).tasks
    gib = 7_615_616_512 * 2 / 2**30
    assert task.sync_s == pytest.approx(gib / 0.75 + gib / 4.0)


@pytest.mark.parametrize(
    ("precision", "width"), [("fp8_block", 1), ("nvfp4", 0.5), ("fp32-master/bf16", 2), ("bf16", 2)]
)
def test_weights_are_handed_over_in_the_width_they_are_used_in(precision, width):
    """Block-scaled weights priced as bf16 would take twice the time, and more to move than they do."""
    file = profile_file("decode", precision=precision)
    assert weight_gib(file.model, file.software) == pytest.approx(file.model.params * width / 2**30)


def test_training_does_not_span_nodes_over_an_unknown_link():
    """Data parallelism beyond a node is refused with the key to give, smaller counts stay (A068)."""
    cluster = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    role = role_of(price_of(task_of(), cluster=cluster), "actor")
    assert [option.gpus for option in role.options] == list(range(1, 9))
    (line,) = role.refusals
    assert "inter_node_gib_per_s" in line
    assert "10 to 16 replicas" in line


def test_restart_without_figures_costs_the_whole_horizon():
    """A task whose move is unpriced is not moved for gain; the user's own figure wins."""
    (unknown,) = price_of(task_of(), switching=False).tasks
    assert unknown.restart_s == 3600.0
    stated = task_of(lifecycle=LifecycleSpec(restart_s=12.0))
    assert price_of(stated, switching=False).tasks[0].restart_s == 12.0


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
        price(replace(folder_of(), workload=None), H200)


def test_weights_that_cannot_be_handed_over_keep_the_roles_together():
    """No link and no price of a checkpoint: never 0 seconds, but colocated only, and said why."""
    cluster = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    (task,) = price_of(task_of(), cluster=cluster, switching=False).tasks
    assert {each.value for each in task.arrangements} == {"colocated"}
    assert any("inter_node_gib_per_s is unknown" in line for line in task.roles[0].refusals)
    assert task.roles[0].options
    (task,) = price_of(task_of(arrangements=("separate",)), cluster=cluster, switching=False).tasks
    assert task.roles[0].options == ()
    (evaluation,) = price_of(task_of(ROLLOUT, REFERENCE), cluster=cluster, switching=False).tasks
    assert len(evaluation.arrangements) == 3


def test_the_way_through_a_checkpoint_is_noted():
    """A plan that prices the slow way for want of a figure says so."""
    cluster = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    notes = role_of(price_of(task_of(), cluster=cluster)).options[0].notes
    assert any("through a checkpoint" in note for note in notes)
    assert not any("checkpoint" in note for note in role_of(price_of(task_of())).options[0].notes)


# ---------------------------------------------------------------- lengths ahead


def ahead(history, law=None, **changes):
    fields = {"history_tokens": tuple(history)}
    if law is not None:
        fields["response_tokens"] = law
    return task_of(work_per_step=msgspec.structs.replace(WORK, **fields), **changes)


def ahead_price(task, steps):
    folder = folder_of(task)
    return price(folder, H200, fit=lambda loaded: AffineProfile(loaded.file), at_steps_ahead=steps)


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


# ---------------------------------------------------------------- several profiles of a phase


def test_profiles_of_one_stack_join_and_others_are_named():
    """The second profile of a phase joins the fit of the first, unless it is of another stack."""
    files = [
        profile_file("train", name="one"),
        profile_file("train", name="two", mode="ddp"),
        profile_file("train", name="other", zero_stage=3),
    ]
    role = msgspec.structs.replace(ACTOR, profiles=("one", "two", "other"))
    seen = []

    def fit(loaded):
        seen.append((loaded.file.id, [each.file.id for each in loaded.extra]))
        return AffineProfile(loaded.file)

    problem = price(folder_of(task_of(role), files=files), H200, fit=fit)
    assert seen == [("one", ["two"])]
    notes = role_of(problem, "actor").options[0].notes
    assert "other is not used: its software differs from one" in notes


def test_the_shipped_reward_model_learns_from_both_of_its_profiles(shipped):
    """Steps measured on two GPUs answer for two GPUs, rather than a law alone."""
    folder, _ = shipped
    option = role_of(price(folder, H200), "rollout").options[0]
    assert any("p95 of the step" in note for note in option.notes)
    (task,) = [task for task in folder.workload.tasks if task.id == "reward-1.5b"]
    names = task.roles[0].profiles
    two = folder.profiles[names[1]]
    one = replace(folder.profiles[names[0]], extra=(two,))
    joined = fit_profile(one.file, one.points, extra=[(two.file, two.points)])
    measured = next(point for point in two.points if point.dp == 2)
    answer = joined.time_s(Query(measured.batch_sequences, measured.seq_len_tokens, dp=2))
    assert answer.value == measured.time_s


# ---------------------------------------------------------------- luck and layouts


def test_the_luck_of_lengths_is_told_with_the_price():
    """A plan names what one step in twenty may take, above the price itself."""
    option = role_of(price_of(task_of())).options[7]
    (said,) = [note for note in option.notes if note.startswith("p95 of the step over resampled lengths: ")]
    high, median = (
        float(word.strip("(s")) for word in said.split() if word.strip("(s)").replace(".", "").isdigit()
    )
    assert high > median
    assert high > option.time_s.value


def test_an_unmeasured_layout_is_priced_with_its_penalty_in_the_notes(shipped):
    """With priors allowed tp 4 and pp 2 are priced, never in proportion, and the plan says how."""
    folder, fit = shipped
    agent = next(task for task in folder.workload.tasks if task.id == "agent-7b")
    roles = tuple(
        msgspec.structs.replace(role, layouts=(LayoutSpec(), LayoutSpec(tp=4), LayoutSpec(pp=2)))
        for role in agent.roles
        if role.kind == "actor_train"
    )
    task = msgspec.structs.replace(agent, roles=roles, coupling=CouplingSpec())
    asked = replace(folder, workload=msgspec.structs.replace(folder.workload, tasks=(task,)))
    options = role_of(price(asked, H200, fit=fit, allow_prior=True), "actor").options
    one, tp4, pp2 = (
        next(o for o in options if o.layout == layout and o.replicas == 1)
        for layout in (Layout(), Layout(tp=4), Layout(pp=2))
    )
    assert one.time_s.value / 4 < tp4.time_s.value < one.time_s.value
    assert one.time_s.value / 2 < pp2.time_s.value < one.time_s.value
    assert any("tp4 was not measured; assumed from tp1" in note for note in tp4.notes)
    assert any("pipeline bubble" in note for note in pp2.notes)
    assert tp4.asleep_mib == pytest.approx(one.asleep_mib + 392.0)
    assert all(option.layout == Layout() for option in role_of(price(asked, H200, fit=fit), "actor").options)


# ---------------------------------------------------------------- options


def test_one_bad_layout_does_not_spoil_the_others():
    """A tp of 8 does not divide 28 heads: it is refused by name, tp 1 is priced (A005, A068)."""
    role = msgspec.structs.replace(REFERENCE, layouts=(LayoutSpec(), LayoutSpec(tp=8)))
    priced = role_of(price_of(task_of(role)), "reference")
    assert {option.layout for option in priced.options} == {Layout()}
    assert len(priced.refusals) == 1
    assert "28 heads" in priced.refusals[0]
    assert priced.refusals[0].startswith("h200_sxm tp8")


def test_a_role_with_nothing_left_keeps_its_reasons():
    """Only when every option is refused is the role unusable, and it says why."""
    role = msgspec.structs.replace(REFERENCE, layouts=(LayoutSpec(tp=2),))
    priced = role_of(price_of(task_of(role)), "reference")
    assert priced.options == ()
    assert "outside what was measured" in priced.refusals[0]


def test_unmeasured_gpu_class_is_refused_by_name():
    """Prices of one card are never used for another."""
    priced = role_of(price_of(task_of(), cluster=uniform_cluster(8, "a800_sxm", 81_920.0)))
    assert priced.options == ()
    assert priced.refusals == ("a800_sxm: the role's profiles were measured on h200_sxm, not on it",)


def test_mixed_cluster_prices_each_class_from_its_own_profile():
    """Two GPU classes with a profile each give options of both, at their own speed."""
    other = uniform_cluster(4, "h100_sxm", 81_559.0)
    node = replace(other.nodes[0], id="other")
    cards = tuple(replace(gpu, id=GpuId("other", gpu.id.index)) for gpu in node.gpus)
    cluster = Cluster("mixed", (*H200.nodes, replace(node, gpus=cards)))
    role = msgspec.structs.replace(REFERENCE, profiles=("h200-sxm-score", "h100-sxm-score"))
    files = [profile_file("score"), profile_file("score", "h100_sxm")]
    folder = folder_of(task_of(role), files=files)
    speeds = {"h200_sxm": 0.007, "h100_sxm": 0.7}
    problem = price(
        folder,
        cluster,
        fit=lambda loaded: AffineProfile(loaded.file, fixed_s=speeds[loaded.file.hardware.gpu_class]),
    )
    options = role_of(problem, "reference").options
    first = {name: next(o for o in options if o.gpu_class == name) for name in speeds}
    assert first["h100_sxm"].time_s.value > first["h200_sxm"].time_s.value
    assert max(option.gpus for option in options if option.gpu_class == "h100_sxm") == 4


def test_a_role_that_does_not_fit_is_refused_with_the_figures():
    """Actor states above the card's memory leave no option, and the message gives both numbers (A021)."""
    priced = role_of(price_of(task_of(), fields={"static": 150_000.0}), "actor")
    assert priced.options == ()
    assert "MiB per GPU; allowed: 143156 MiB" in priced.refusals[0]


def test_rollout_without_room_for_the_cache_says_what_does_not_fit():
    """No KV room is refused without the advice to raise memory utilisation (A027)."""
    priced = role_of(price_of(task_of(), fields={"static": 142_000.0}))
    assert priced.options == ()
    assert "do not fit" in priced.refusals[0]
    assert "cannot help" in priced.refusals[0]


def test_rollout_memory_budget_leaves_what_others_hold_on_the_card():
    """The engine's budget is what is free beside context and driver, not total × utilisation (A020)."""
    for option in role_of(price_of(task_of(), fields={"mib_per_token": 5.0})).options:
        assert option.peak_mib <= 143_155.9
        assert option.asleep_mib == 800.0


def test_prefixes_are_prefilled_anew_unless_the_engine_keeps_them():
    """Each turn re-reads its prefix without prefix caching; with it only the prompt is read."""
    work = msgspec.structs.replace(WORK, turns=4)
    kept = [profile_file("decode", flags={"prefix_caching": True}), profile_file("score")]
    plain = [profile_file("decode"), profile_file("score")]
    times = [
        role_of(price_of(task_of(ROLLOUT, work_per_step=work), files=files)).options[0]
        for files in (plain, kept)
    ]
    assert times[0].time_s.value > times[1].time_s.value
    assert any("4 turns" in note for note in times[0].notes)


def test_unmeasured_overhead_is_assumed_and_said():
    """Unknown memory outside the allocator is not 0: a bound is taken and noted."""
    (option, *_) = role_of(price_of(task_of(), fields={"outside_allocator_mib": None}), "reference").options
    assert option.asleep_mib == 1024.0
    assert any("assumed 1024 MiB" in note for note in option.notes)


def test_a_role_that_cannot_sleep_has_no_price_for_it():
    """can_sleep false, or no host link measured: None, not 0 seconds."""
    role = msgspec.structs.replace(REFERENCE, can_sleep=False)
    option = role_of(price_of(task_of(role)), "reference").options[0]
    assert option.sleep_s is None
    assert option.wake_s is None
    option = role_of(price_of(task_of(REFERENCE), switching=False), "reference").options[0]
    assert option.sleep_s is None


def test_async_rollout_is_priced_at_its_steady_rate():
    """With staleness the tail overlaps the next step, so the same role is faster than sync."""
    coupled = CouplingSpec(kind="async", staleness_steps=2)
    overlapped = price_of(task_of(coupling=coupled))
    assert overlapped.tasks[0].coupling.kind is CouplingKind.ASYNC
    alone = [option for option in role_of(overlapped).options if option.alone]
    for slow, fast in zip(role_of(price_of(task_of())).options, alone, strict=True):
        assert fast.time_s.value < slow.time_s.value


def test_async_rollout_in_turns_with_others_drains_every_step():
    """Continuous generation cannot share its GPUs in turns, so such a pool pays the sync makespan."""
    problem = price_of(task_of(coupling=CouplingSpec(kind="async", staleness_steps=1)))
    drained = [option for option in role_of(problem).options if not option.alone]
    assert [o.time_s for o in drained] == [o.time_s for o in role_of(price_of(task_of())).options]
    for column in columns_of(problem.tasks[0], H200).columns:
        for pool in (pool for phase in column.phases for pool in phase.pools):
            if len(pool.choices) > 1 or len(column.phases) > 1:
                assert not any(choice.option.alone for choice in pool.choices)
    separate = columns_of(problem.tasks[0], H200).columns
    assert any(
        choice.option.alone for c in separate for f in c.phases for p in f.pools for choice in p.choices
    )


def test_concurrency_limit_is_kept_and_noted():
    """The note says that the user's limit, not memory, sets how many run at once."""
    role = msgspec.structs.replace(ROLLOUT, max_concurrency=4)
    limited = role_of(price_of(task_of(role))).options[0]
    free = role_of(price_of(task_of(ROLLOUT))).options[0]
    assert "concurrency 4 per replica: max_concurrency" in limited.notes
    assert limited.time_s.value > free.time_s.value
    assert limited.peak_mib < free.peak_mib


def test_missing_score_profile_is_noted_not_hidden():
    """Without a profile for prefill the time is decode only, and the option says so."""
    role = msgspec.structs.replace(ROLLOUT, profiles=("h200-sxm-decode",))
    without = role_of(price_of(task_of(role))).options[0]
    with_prefill = role_of(price_of(task_of(ROLLOUT))).options[0]
    assert any("prefill is not in the time" in note for note in without.notes)
    assert with_prefill.time_s.value > without.time_s.value


def test_samples_that_must_divide_restrict_the_replicas():
    """A framework that needs samples ÷ dp whole says so in its profile's flags."""
    file = profile_file("train", flags={"samples_divide_by_dp": True})
    priced = role_of(price_of(task_of(ACTOR), files=[file]), "actor")
    assert [option.replicas for option in priced.options] == [1, 2, 4, 8]


def test_more_replicas_than_samples_are_never_offered():
    """Four samples cannot keep eight replicas busy (A086)."""
    work = msgspec.structs.replace(WORK, samples=4)
    for name in ("rollout", "reference", "actor"):
        options = role_of(price_of(task_of(work_per_step=work)), name).options
        assert max(option.replicas for option in options) == 4


def test_a_budget_below_the_longest_sample_is_refused():
    """micro_batch_tokens under prompt + response leaves no option and names both (A085)."""
    role = msgspec.structs.replace(ACTOR, micro_batch_tokens=4096)
    priced = role_of(price_of(task_of(role)), "actor")
    assert priced.options == ()
    assert "micro_batch_tokens 4096" in priced.refusals[0]


# ---------------------------------------------------------------- replica counts


def test_replica_counts_are_all_up_to_64_gpus_then_whole_nodes():
    """Large clusters are priced at counts that fill nodes."""
    counts = replica_counts(1, 1, 128, 10**6, 8)
    assert counts[:64] == tuple(range(1, 65))
    assert counts[64:] == tuple(range(72, 129, 8))


def test_replica_counts_that_gain_nothing_are_left_out():
    """With 64 items, 17 to 21 replicas all leave 4 on the busiest; whole nodes stay."""
    counts = replica_counts(1, 1, 64, 64, 8)
    assert [count for count in counts if 16 <= count <= 24] == [16, 22, 24]
    assert counts[-1] == 64


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((2, 1, 8, 100, 8), (1, 2, 3, 4)),
        ((2, 5, 8, 100, 8), (3, 4)),  # at least 5 GPUs are 3 replicas of 2
        ((1, 1, 8, 3, 8), (1, 2, 3)),
        ((2, 1, 8, 100, 8, 6), (3,)),
        ((2, 1, 8, 100, 8, 5), ()),  # 5 pinned GPUs are no whole number of replicas
        ((16, 1, 8, 100, 8), ()),
    ],
)
def test_replica_counts_obey_the_role_limits(arguments, expected):
    """Minimum, samples, replica size and pinned GPUs bound the counts."""
    assert replica_counts(*arguments) == expected
