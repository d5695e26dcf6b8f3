"""Which layouts and counts of a role are priced, and which refused in one line."""

from dataclasses import replace

import msgspec
from pricing_cases import ACTOR, H200, REFERENCE, affine_fits, folder_of, price_of, role_of, task_of

from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.pricing.layout import PriceInputs, Refusals
from libra_plan.models.pricing.role import price_role
from libra_plan.models.pricing.work import work_of
from libra_plan.models.stage_option import Coupling, CouplingKind
from libra_plan.models.topology import GpuId
from libra_plan.profiles.schema import LayoutSpec


def priced(role, cluster=H200, **fields):
    """Price one role alone: its options and the lines of refusals."""
    task = task_of(role)
    folder, refusals = folder_of(task), Refusals()
    prices = PriceInputs(cluster, folder.profiles, affine_fits(folder, **fields), folder.switching)
    options = list(price_role(role, work_of(task, {}, 0), Coupling(CouplingKind.SYNC), prices, refusals))
    return options, refusals.lines()


def test_every_count_of_a_node_is_priced():
    """One to eight replicas of one GPU each, and nothing refused."""
    options, refused = priced(REFERENCE)
    assert [option.replicas for option in options] == list(range(1, 9))
    assert refused == ()


def test_limits_of_the_role_bound_its_counts():
    """Fewest and most GPUs are the user's."""
    options, _ = priced(msgspec.structs.replace(REFERENCE, min_gpus=3, max_gpus=5))
    assert [option.gpus for option in options] == [3, 4, 5]


def test_a_replica_that_neither_fits_nor_fills_nodes_is_refused():
    """Four GPUs in nodes of three would leave gaps in every node."""
    cluster = uniform_cluster(6, "h200_sxm", 143_155.9, gpus_per_node=3)
    role = msgspec.structs.replace(REFERENCE, layouts=(LayoutSpec(tp=4),))
    options, refused = priced(role, cluster)
    assert options == []
    assert refused == ("h200_sxm tp4: 4 GPUs per replica neither fit in a node of 3 nor fill nodes",)


def test_a_replica_wider_than_an_nvlink_domain_is_refused():
    """Tensor parallelism does not cross domains."""
    cluster = uniform_cluster(4, "h200_sxm", 143_155.9, gpus_per_node=2)
    apart = tuple(replace(node, nvlink_domain=node.id) for node in cluster.nodes)
    role = msgspec.structs.replace(REFERENCE, layouts=(LayoutSpec(tp=4),))
    _, refused = priced(role, replace(cluster, nodes=apart))
    assert refused == ("h200_sxm tp4: a replica of 4 GPUs needs 2 whole nodes of one NVLink domain",)


def test_limits_that_no_count_meets_are_refused():
    """A role that needs more GPUs than it may have gets none."""
    options, refused = priced(msgspec.structs.replace(REFERENCE, min_gpus=9))
    assert options == []
    assert refused == ("h200_sxm tp1: no replica count fits 9 to 8 GPUs and 64 samples",)


def test_what_does_not_fit_in_memory_is_refused_with_its_size():
    """The line names what is needed and what there is."""
    _, (line,) = priced(ACTOR, static=200_000.0)
    assert "the role does not fit on the GPU" in line
    assert "143156 MiB" in line


def test_pinned_gpus_leave_one_count():
    """A role that is pinned to two GPUs runs on two."""
    role = msgspec.structs.replace(REFERENCE, pinned_gpus=("node0:0", "node0:1"))
    pinned = role_of(price_of(task_of(role)), "reference")
    assert [option.gpus for option in pinned.options] == [2]
    assert pinned.pinned_gpus == {GpuId("node0", 0), GpuId("node0", 1)}
