"""Clusters from files and from a GPU count, and the names of GPUs."""

import pytest

from libra_plan.errors import ClusterError
from libra_plan.models.clusters import cluster_of, resolve_gpu, uniform_cluster
from libra_plan.models.topology import GpuId
from libra_plan.profiles.schema import ClusterFile, GpuSpec, NodeSpec

UUIDS = ("GPU-52a3aaaa-1111", "GPU-52a3bbbb-2222", "GPU-77c0cccc-3333")


def file_of(*nodes):
    return ClusterFile(schema_version=1, nodes=nodes, intra_node_gib_per_s=365.0)


def listed(**changes):
    gpus = tuple(GpuSpec(index=at, uuid=uuid) for at, uuid in enumerate(UUIDS))
    return NodeSpec(
        **{"id": "n0", "gpu_class": "h200_sxm", "gpus": gpus, "gpu_memory_mib": 143155.9, **changes}
    )


def test_nodes_of_different_sizes_are_all_usable():
    """8 and 4 GPUs are 12, not nodes × one number (A004, A014)."""
    nodes = [
        NodeSpec(id=f"n{count}", gpu_class="h200_sxm", gpu_count=count, gpu_memory_mib=1e5)
        for count in (8, 4)
    ]
    assert len(cluster_of(file_of(*nodes)).gpus) == 12


def test_excluded_nodes_and_gpus_are_left_out():
    """A drained node and a lost GPU are not offered, the others keep their indices."""
    gpus = (GpuSpec(index=0), GpuSpec(index=3, excluded=True), GpuSpec(index=5))
    cluster = cluster_of(file_of(listed(gpus=gpus), listed(id="n1", excluded=True)))
    assert [str(gpu) for gpu in cluster.gpus] == ["n0:0", "n0:5"]


def test_unknown_memory_is_asked_for_and_not_assumed():
    """Without memory in the file or in a profile of the class the planner cannot go on."""
    node = listed(gpu_memory_mib=None)
    with pytest.raises(ClusterError, match="in MiB"):
        cluster_of(file_of(node))
    assert cluster_of(file_of(node), {"h200_sxm": 143155.9}).memory_mib("h200_sxm") == 143155.9


def test_measured_memory_is_taken_as_it_is():
    """An 80 GB card with 81,559 MiB keeps that figure: no GB to GiB conversion on the way (A028)."""
    gpus = (GpuSpec(index=0, memory_mib=81_559), GpuSpec(index=1, memory_mib=81_920))
    cluster = cluster_of(file_of(listed(gpus=gpus, gpu_memory_mib=None)))
    assert cluster.memory_mib("h200_sxm") == 81_559


def test_mig_instance_is_not_a_whole_gpu():
    """A MIG UUID is refused, so a slice never counts as the card (A019)."""
    with pytest.raises(ClusterError, match="MIG"):
        cluster_of(file_of(listed(gpus=(GpuSpec(index=0, uuid="MIG-1c9e"),))))


@pytest.mark.parametrize(
    ("text", "index"),
    [("n0:1", 1), (UUIDS[2], 2), ("GPU-77", 2), ("GPU-52a3b", 1)],
)
def test_a_gpu_is_found_by_index_uuid_and_unique_beginning(text, index):
    """Schedulers hand out any of the three forms (A011)."""
    assert resolve_gpu(cluster_of(file_of(listed())), text) == GpuId("n0", index)


@pytest.mark.parametrize("text", ["GPU-52a3", "GPU-", "n0:7", "n9:0", "GPU-ff", "", "0"])
def test_ambiguous_and_unknown_names_are_refused(text):
    """A beginning that two cards share must not pick one of them."""
    with pytest.raises(ClusterError):
        resolve_gpu(cluster_of(file_of(listed())), text)


def test_a_plain_count_fills_nodes_and_leaves_the_rest_to_the_last():
    """--gpus 20 is 8 + 8 + 4, with what a node has besides said to be assumed."""
    cluster = uniform_cluster(20, "h200_sxm", 143155.9)
    assert [len(node.gpus) for node in cluster] == [8, 8, 4]
    assert [node.cpu_cores for node in cluster] == [192, 192, 96]
    assert "assumed" in cluster.name
    assert all(gpu.uuid is None for gpu in cluster.gpus.values())


def test_nodes_of_four_stay_nodes_of_four():
    """There is no hidden eight per node (A006)."""
    assert [len(node.gpus) for node in uniform_cluster(8, "gb200", 1e5, 4)] == [4, 4]


def test_no_gpus_is_an_error():
    """Zero GPUs cannot be planned on, whether counted or excluded."""
    with pytest.raises(ClusterError):
        uniform_cluster(0, "h200_sxm", 1e5)
    with pytest.raises(ClusterError):
        cluster_of(file_of(listed(excluded=True)))


def test_what_is_left_out_is_told_with_its_holder_and_the_free_count():
    """Whoever asks why a GPU is not used gets a name and a number (A002, A003)."""
    gpus = (
        GpuSpec(index=0),
        GpuSpec(index=1, held_by="alice"),
        GpuSpec(index=2, state="lost"),
        GpuSpec(index=3, mig=True, held_by="bob"),
    )
    nodes = [listed(gpus=gpus), listed(id="n1", gpu_count=8, gpus=(), state="drained")]
    nodes.append(listed(id="n2", gpu_count=2, gpus=(), held_by="alice"))
    cluster = cluster_of(file_of(*nodes))
    assert [str(gpu) for gpu in cluster.gpus] == ["n0:0"]
    note = cluster.usable_note()
    assert note.startswith("1 of 14 GPUs are usable; 3 held by alice (n0:1, n2:0, n2:1)")
    assert "1 lost (n0:2)" in note
    assert "8 drained (n1:0, n1:1, n1:2, ... n1:7)" in note
    assert "1 left out because MIG is on (n0:3)" in note
    with pytest.raises(ClusterError, match="held by alice"):
        resolve_gpu(cluster, "n2:1")


def test_a_cluster_that_others_hold_says_who():
    """`no usable GPU` alone sends people looking; the holder's name does not."""
    with pytest.raises(ClusterError, match="held by alice"):
        cluster_of(file_of(listed(held_by="alice")))


def test_a_price_between_nodes_counts_on_the_slowest_link_there_may_be():
    """Prices are made before placement: with two racks the link between them, with one that of nodes."""
    for racks, link in ((("r0", "r1"), 10.0), (("r0", "r0"), 40.0), (("r0", None), 10.0)):
        nodes = tuple(
            listed(id=f"n{at}", gpus=(GpuSpec(index=0),), rack=rack) for at, rack in enumerate(racks)
        )
        file = ClusterFile(
            schema_version=1, nodes=nodes, inter_node_gib_per_s=40.0, inter_rack_gib_per_s=10.0
        )
        assert cluster_of(file).between_nodes_gib_per_s() == link


def test_replicas_span_the_nodes_of_one_domain_once_any_is_named():
    """A node without a domain beside nodes with one is alone; without any all nodes are together."""

    def spans(*domains):
        nodes = (
            listed(id=f"n{at}", gpus=(GpuSpec(index=0),), nvlink_domain=d) for at, d in enumerate(domains)
        )
        return list(cluster_of(file_of(*nodes)).span_of.values())

    assert len(set(spans(None, None))) == 1
    first, second, third, fourth = spans("a", "a", None, None)
    assert first == second
    assert len({first, third, fourth}) == 3


def test_a_misspelt_class_without_memory_is_told_as_such():
    """The memory would be known, were the class the one that was measured."""
    with pytest.raises(ClusterError, match=r"h200_smx was not measured: did you mean `h200_sxm`\?"):
        cluster_of(file_of(NodeSpec(id="n", gpu_class="h200_smx", gpu_count=1)), {"h200_sxm": 143155.0})
