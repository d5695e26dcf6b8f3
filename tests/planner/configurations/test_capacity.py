"""What nodes offer to blocks of GPUs, counted by hand."""

from __future__ import annotations

import pytest

from libra_plan.planner.configurations.capacity import block_rooms, replicas_per_block


@pytest.mark.parametrize(
    ("block", "replica", "wanted"),
    [
        (8, 3, 2),  # two of the eight stay idle
        (16, 3, 4),  # two in each of two nodes; none may be cut
        (16, 8, 2),
        (16, 16, 1),
        (24, 12, 0),  # a replica of a node and a half fills no whole nodes
    ],
)
def test_replicas_are_not_cut_by_a_node(block: int, replica: int, wanted: int) -> None:
    """Nodes of 8 GPUs."""
    assert replicas_per_block(block, replica, 8) == wanted


def test_blocks_fit_node_by_node_or_in_whole_nodes_of_one_span() -> None:
    """Odd GPUs of a node are no use to a block; larger blocks take full nodes that are linked."""
    assert block_rooms((4, 3, 1), 2, 4) == 3
    assert block_rooms((8, 8, 7, 8), 16, 8) == 1
    assert block_rooms((8, 8, 8, 8), 16, 8, ("x", "y", "x", "y")) == 2
    assert block_rooms((8, 8, 8, 8), 16, 8, ("x", "y", "z", "z")) == 1
    assert block_rooms((8, 8, 8, 8), 12, 8) == 0
