"""How many blocks hold smaller ones, counted by hand."""

from __future__ import annotations

from libra_plan.planner.configurations.packing import are_nested, blocks_around, spots


def test_sizes_nest_when_each_divides_the_next_and_the_node() -> None:
    """A block of several nodes must be made of whole ones."""
    assert are_nested((1, 2, 8), 8)
    assert not are_nested((2, 3), 8)
    assert are_nested((4, 16), 8)
    assert not are_nested((3, 24), 8)


def test_blocks_around_smaller_ones() -> None:
    """Threes leave two of eight GPUs idle; the last block has room for a two and a three."""
    assert blocks_around(((2, 4),), 8, 8) == 1
    assert blocks_around(((3, 2), (2, 1)), 8, 8) == 1
    assert blocks_around(((3, 3),), 8, 8) == 2
    assert blocks_around(((3, 4), (2, 3)), 8, 8) == 3
    assert blocks_around(((16, 1),), 8, 8) is None


def test_every_smaller_block_has_a_spot_of_its_own() -> None:
    """Two threes and a two fill a block of eight on one node; three threes do not fit."""
    assert spots((3, 3, 2), 8, 8, 1) == [(0, (0,))] * 3
    assert len(spots((3, 3, 3), 8, 8, 1)) < 3
