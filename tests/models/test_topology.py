"""The cluster: classes, spans, links between nodes, and seats on shared GPUs."""

import pytest

from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import (
    AbsentGpu,
    Cluster,
    Gpu,
    GpuId,
    Node,
    on_seat,
    seat_class,
    seat_index,
    whole_class,
)
from libra_plan.profiles.schema import SharedRate


def node(name, gpus=2, gpu_class="h200_sxm", memory=1000.0, **fields):
    return Node(name, tuple(Gpu(GpuId(name, at), gpu_class, memory) for at in range(gpus)), **fields)


def test_classes_memory_and_full_nodes_count_what_others_hold():
    """Eight free GPUs on half-held nodes do not make a whole node."""
    absent = (AbsentGpu(GpuId("a", 2), "h200_sxm", "held by alice"),)
    cluster = Cluster("lab", (node("a"), node("b", 1, "h100_sxm"), node("c", 1, memory=900.0)), absent=absent)
    assert cluster.gpu_classes == ("h200_sxm", "h100_sxm")
    assert cluster.full_node_gpus == {"h200_sxm": 3, "h100_sxm": 1}
    assert cluster.memory_mib("h200_sxm") == 900.0
    assert cluster.usable_note() == "4 of 5 GPUs are usable; 1 held by alice (a:2)"


def test_a_replica_spans_one_nvlink_domain_where_any_is_named():
    """A node without a domain is then alone; without any, all nodes are one set."""
    plain = Cluster("lab", (node("a"), node("b")))
    assert set(plain.span_of.values()) == {""}
    named = Cluster("lab", (node("a", nvlink_domain="x"), node("b", nvlink_domain="x"), node("c")))
    assert named.span_of["a"] == named.span_of["b"] != named.span_of["c"]


@pytest.mark.parametrize(
    ("racks", "inter_rack", "expected"),
    [(("r", "r"), 10.0, 40.0), (("r", "s"), 10.0, 10.0), (("r", "s"), None, 40.0), (("r", "s"), 90.0, 40.0)],
)
def test_traffic_between_nodes_is_as_slow_as_the_slowest_link_it_may_meet(racks, inter_rack, expected):
    """A price must hold wherever the task is placed."""
    nodes = tuple(node(f"n{at}", rack=rack) for at, rack in enumerate(racks))
    cluster = Cluster("lab", nodes, inter_node_gib_per_s=40.0, inter_rack_gib_per_s=inter_rack)
    assert cluster.between_nodes_gib_per_s() == expected


def test_a_seat_has_a_class_and_an_index_of_its_own():
    """Seats are priced and placed apart from whole GPUs."""
    assert whole_class(seat_class("h200_sxm")) == "h200_sxm" == whole_class("h200_sxm")
    assert (seat_index(7, 1), seat_index(7, 2)) == (1007, 2007)


def test_a_seat_counts_on_a_neighbour_that_always_works():
    """The value by the median share, the bounds by the smallest share and by an idle neighbour."""
    pair = SharedRate(a="train", b="decode", rate_a=0.4, rate_b=0.5)
    alone = Estimate(1.0, 0.9, 1.2, "s", Origin.MEASURED)
    seated = on_seat(alone, [pair])
    assert seated.value == pytest.approx(1 / 0.45)
    assert (seated.low, seated.high) == (0.9, pytest.approx(1.2 / 0.4))
    assert seated.origin is Origin.EXTRAPOLATED
