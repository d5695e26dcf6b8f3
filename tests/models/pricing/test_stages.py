"""Options of a role from its profiles: which join, which are refused and what is noted."""

from dataclasses import replace

import msgspec
from affine_profile import AffineProfile, profile_file
from pricing_cases import ACTOR, H200, REFERENCE, fits_with, folder_of, price_of, role_of, task_of

from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.parallelism import Layout
from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.pricing import price_workload
from libra_plan.profiles.schema import (
    LayoutSpec,
)


def test_training_does_not_span_nodes_over_an_unknown_link():
    """Data parallelism beyond a node is refused with the key to give, smaller counts stay (A068)."""
    cluster = uniform_cluster(16, "h200_sxm", 143_155.9, inter_node_gib_per_s=None)
    role = role_of(price_of(task_of(), cluster=cluster), "actor")
    assert [option.gpus for option in role.options] == list(range(1, 9))
    (line,) = role.refusals
    assert "inter_node_gib_per_s" in line
    assert "10 to 16 replicas" in line


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

    folder = folder_of(task_of(role), files=files)
    problem = price_workload(folder, H200, fits=fits_with(folder, fit))
    assert seen == [("one", ["two"])]
    notes = role_of(problem, "actor").options[0].notes
    assert "other is not used: its software differs from one" in notes


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
    fits = fits_with(
        folder, lambda loaded: AffineProfile(loaded.file, fixed_s=speeds[loaded.file.hardware.gpu_class])
    )
    problem = price_workload(folder, cluster, fits=fits)
    options = role_of(problem, "reference").options
    first = {name: next(o for o in options if o.gpu_class == name) for name in speeds}
    assert first["h100_sxm"].time_s.value > first["h200_sxm"].time_s.value
    assert max(option.gpus for option in options if option.gpu_class == "h100_sxm") == 4


def test_unmeasured_overhead_is_assumed_and_said():
    """Unknown memory outside the allocator is not 0: a bound is taken and noted."""
    (option, *_) = role_of(price_of(task_of(), fields={"outside_allocator_mib": None}), "reference").options
    assert option.asleep_mib == 1024.0
    assert any("assumed 1024 MiB" in note for note in option.notes)


def test_a_budget_below_the_longest_sample_is_refused():
    """micro_batch_tokens under prompt + response leaves no option and names both (A085)."""
    role = msgspec.structs.replace(ACTOR, micro_batch_tokens=4096)
    priced = role_of(price_of(task_of(role)), "actor")
    assert priced.options == ()
    assert "micro_batch_tokens 4096" in priced.refusals[0]
