"""What the verifier counts of blocks: room of an empty cluster, and blocks that replicas need."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.tables import table_role
from libra_plan.planner.verify.blocks import Inventory, bins_needed, blocks_needed, gpus_in_blocks, per_block


def cluster(*sizes: int, domains: tuple[str | None, ...] = ()) -> Cluster:
    named = domains or (None,) * len(sizes)
    nodes = [
        Node(
            f"n{at}",
            tuple(Gpu(GpuId(f"n{at}", i), "a", 1000.0 - at) for i in range(gpus)),
            nvlink_domain=domain,
        )
        for at, (gpus, domain) in enumerate(zip(sizes, named, strict=True))
    ]
    return Cluster("lab", tuple(nodes))


@pytest.mark.parametrize(
    ("sizes", "domains", "block", "room"),
    [
        ((8, 8, 5), (), 4, 5),  # 2 + 2 + 1
        ((8, 8, 5), (), 3, 5),  # 2 + 2 + 1
        ((8, 8, 8), (), 16, 1),  # whole nodes, two at a time
        ((8, 8, 5), (), 16, 1),
        ((8, 8, 5), (), 12, 0),  # not a number of whole nodes
        ((8, 8, 8, 8), ("x", "x", "x", "y"), 16, 1),  # no block reaches over two domains
        ((8, 8, 8, 8), ("x", None, None, "x"), 16, 1),  # a node without a domain is alone
    ],
)
def test_room_counts_blocks_that_no_node_cuts(sizes, domains, block, room) -> None:
    """A room counted too large would let a plan claim blocks that are not there."""
    assert Inventory(cluster(*sizes, domains=domains)).room("a", block) == room


def test_memory_is_that_of_the_smallest_gpu() -> None:
    """A plan may be placed on any GPU of a class."""
    assert Inventory(cluster(2, 2, 1)).memory_mib == {"a": 998.0}


@pytest.mark.parametrize(
    ("node", "size", "block", "number"),
    [(8, 2, 8, 4), (8, 3, 8, 2), (8, 3, 16, 4), (8, 16, 32, 2), (4, 3, 4, 1)],
)
def test_a_block_holds_smaller_ones_node_by_node(node, size, block, number) -> None:
    """Two nodes of 8 hold four replicas of 3 GPUs, not five."""
    assert per_block(node, size, block) == number


def test_gpus_count_as_larger_blocks_only_where_they_make_some() -> None:
    """Seven GPUs in one block make one block of 4, and none of 16; 12 is no number of whole nodes."""
    assert gpus_in_blocks(8, 7, 4) == 4
    assert gpus_in_blocks(8, 7, 16) == 0
    assert gpus_in_blocks(8, 16, 8) == 16
    assert gpus_in_blocks(8, 16, 12) == 0


@pytest.mark.parametrize("node", [4, 6, 8])
def test_bins_are_as_few_as_trying_finds(node: int) -> None:
    """The shortcut for sizes that divide each other must agree with putting every item everywhere."""
    for block in (node, 2 * node):
        for items in product((1, 2, 3, 4), repeat=4):
            ordered = tuple(sorted(items, reverse=True))
            assert bins_needed(ordered, block, node) == tried(ordered, block, node), (ordered, block)


def tried(items, block, node):
    """Count blocks by trying every placement of every item on every node."""
    for blocks in range(1, len(items) + 1):
        nodes = [node] * (blocks * block // node)
        for places in product(range(len(nodes)), repeat=len(items)):
            left = list(nodes)
            for item, place in zip(items, places, strict=True):
                left[place] -= item
            if min(left) >= 0:
                return blocks
    raise AssertionError


def test_replicas_need_whole_blocks() -> None:
    """Five replicas of 2 GPUs need two blocks of 8."""
    (option,) = table_role("r", {10: 1.0}, replica_gpus=2).options
    assert blocks_needed(8, option, 8) == 2
    assert blocks_needed(8, option, 2) == 5


def test_pinned_gpus_are_covered_by_whole_replicas() -> None:
    """Three pinned GPUs of one node and one of another are no two replicas of two GPUs."""
    inventory = Inventory(cluster(4, 4))
    role = table_role("r", {4: 1.0}, gpu_class="a", replica_gpus=2)
    (option,) = role.options
    uneven = frozenset({GpuId("n0", 0), GpuId("n0", 1), GpuId("n0", 2), GpuId("n1", 0)})
    even = frozenset({GpuId("n0", 0), GpuId("n0", 1), GpuId("n1", 2), GpuId("n1", 0)})
    assert not inventory.covers(replace(role, pinned_gpus=uneven), option)
    assert inventory.covers(replace(role, pinned_gpus=even), option)
    assert inventory.use_of_gpus(sorted(uneven), "a", 2) == 2
