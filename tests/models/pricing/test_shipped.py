"""The shipped workload priced: every role has options that fit and say where they come from."""

from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from pricing_cases import H200, fits_with, role_of

from libra_plan.models.fit import fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.planner.pricing import price_workload
from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.schema import (
    CouplingSpec,
    LayoutSpec,
)


@pytest.fixture(scope="module")
def shipped():
    """Return the shipped folder with its fits, made once."""
    folder = load_folder(shipped_folder())
    named = {name for task in folder.workload.tasks for role in task.roles for name in role.profiles}
    fits = {name: fit_profile(folder.profiles[name].file, folder.profiles[name].points) for name in named}
    return folder, fits_with(folder, lambda loaded: fits[loaded.file.id])


def test_the_shipped_workload_prices_every_role_on_one_node(shipped):
    """Out of the box every GPU role has an option for 1 to 8 GPUs, and nothing was refused."""
    folder, fits = shipped
    problem = price_workload(folder, H200, fits=fits)
    for task in problem.tasks:
        for role in task.gpu_roles:
            assert [option.gpus for option in role.options] == list(range(1, 9)), (task.id, role.refusals)
            assert role.refusals == ()


def test_shipped_options_fit_and_say_where_their_numbers_come_from(shipped):
    """Peak ≥ static ≥ asleep > 0, inside the GPU's memory, with bounds around the time."""
    folder, fits = shipped
    for task in price_workload(folder, H200, fits=fits).tasks:
        for option in (option for role in task.gpu_roles for option in role.options):
            assert 143_155.9 >= option.peak_mib >= option.static_mib > option.asleep_mib > 700
            assert option.time_s.low < option.time_s.value < option.time_s.high
            assert option.host_static_mib == pytest.approx(option.static_mib - option.asleep_mib)
            assert option.sleep_s == pytest.approx(option.host_static_mib / 1024 / 51.3, rel=1e-3)


def test_more_gpus_do_not_slow_a_shipped_role_beyond_luck(shipped):
    """Averaged over orders, times fall with replicas up to the luck of who meets the longest."""
    folder, fits = shipped
    for task in price_workload(folder, H200, fits=fits).tasks:
        for role in task.gpu_roles:
            times = [option.time_s.value for option in role.options]
            assert all(later < 1.05 * earlier for earlier, later in pairwise(times))
            assert times[-1] < 0.75 * times[0]


def test_the_same_inputs_give_the_same_problem(shipped):
    """Pricing has no hidden randomness: a second run is equal, another seed is not."""
    folder, fits = shipped
    assert price_workload(folder, H200, fits=fits) == price_workload(folder, H200, fits=fits)
    assert (
        price_workload(folder, H200, fits=fits).tasks != price_workload(folder, H200, fits=fits, seed=1).tasks
    )


def test_shipped_restart_is_start_save_and_load(shipped):
    """The agent task saves and loads the actor's state and loads two sets of 7B weights."""
    folder, fits = shipped
    task = price_workload(folder, H200, fits=fits).task_of["agent-7b"]
    actor = next(role for role in task.roles if role.id == "actor").options[0].host_static_mib / 1024
    weights = 2 * 7_615_616_512 * 2 / 2**30
    expected = 8.32 + actor / 0.7567 + (actor + weights) / 3.9346
    assert task.restart_s == pytest.approx(expected, rel=1e-3)


def test_the_shipped_reward_model_learns_from_both_of_its_profiles(shipped):
    """Steps measured on two GPUs answer for two GPUs, rather than a law alone."""
    folder, _ = shipped
    option = role_of(price_workload(folder, H200), "rollout").options[0]
    assert any("p95 of the step" in note for note in option.notes)
    (task,) = [task for task in folder.workload.tasks if task.id == "reward-1.5b"]
    names = task.roles[0].profiles
    two = folder.profiles[names[1]]
    one = replace(folder.profiles[names[0]], extra=(two,))
    joined = fit_profile(one.file, one.points, extra=[(two.file, two.points)])
    measured = next(point for point in two.points if point.dp == 2)
    answer = joined.time_s(Query(measured.batch_sequences, measured.seq_len_tokens, dp=2))
    assert answer.value == measured.time_s


def test_an_unmeasured_layout_is_priced_with_its_penalty_in_the_notes(shipped):
    """With priors allowed tp 4 and pp 2 are priced, never in proportion, and the plan says how."""
    folder, fits = shipped
    agent = next(task for task in folder.workload.tasks if task.id == "agent-7b")
    roles = tuple(
        msgspec.structs.replace(role, layouts=(LayoutSpec(), LayoutSpec(tp=4), LayoutSpec(pp=2)))
        for role in agent.roles
        if role.kind == "actor_train"
    )
    task = msgspec.structs.replace(agent, roles=roles, coupling=CouplingSpec())
    asked = replace(folder, workload=msgspec.structs.replace(folder.workload, tasks=(task,)))
    options = role_of(price_workload(asked, H200, fits=fits, allow_prior=True), "actor").options
    one, tp4, pp2 = (
        next(o for o in options if o.layout == layout and o.replicas == 1)
        for layout in (Layout(), Layout(tp=4), Layout(pp=2))
    )
    assert one.time_s.value / 4 < tp4.time_s.value < one.time_s.value
    assert one.time_s.value / 2 < pp2.time_s.value < one.time_s.value
    assert any("tp4 was not measured; assumed from tp1" in note for note in tp4.notes)
    assert any("pipeline bubble" in note for note in pp2.notes)
    assert tp4.asleep_mib == pytest.approx(one.asleep_mib + 392.0)
    assert all(
        option.layout == Layout()
        for option in role_of(price_workload(asked, H200, fits=fits), "actor").options
    )
