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
