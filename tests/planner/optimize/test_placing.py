"""How frozen cases are placed: blocks of nested sizes, kept where they are, and shares of GPUs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.planner.optimize.colgen.placing import Block, NodeRoom, Share, place_blocks, place_shares


@given(
    st.lists(st.sampled_from([1, 2, 4, 8, 16]), max_size=12),
    st.lists(st.integers(4, 8), min_size=2, max_size=6),
)
@settings(max_examples=60, deadline=None)
def test_blocks_fit_exactly_when_the_capacity_rows_hold(sizes: list[int], nodes: list[int]) -> None:
    """Rows for nested sizes are necessary and sufficient, so a choice never fails in placement."""
    rooms = [NodeRoom(str(i), "a", tuple(range(8 if i < 2 else n))) for i, n in enumerate(nodes)]
    counts = [len(room.gpus) for room in rooms]
    holds = all(
        sum(size for size in sizes if size >= k)
        <= (k * sum(n // k for n in counts) if k < 16 else 16 * (counts.count(8) // 2))
        for k in (1, 2, 4, 8, 16)
    )
    placed = place_blocks(rooms, [Block(f"o{i}", "a", size) for i, size in enumerate(sizes)], {})
    assert (placed is not None) == holds
    if placed is not None:
        used = [gpu for gpus in placed for gpu in gpus]
        assert len(used) == len(set(used)) == sum(sizes)


def test_kept_blocks_give_way_to_a_larger_one() -> None:
    """Keeping must not make a choice impossible that capacity allows."""
    rooms = [NodeRoom("n0", "a", tuple(range(8))), NodeRoom("n1", "a", tuple(range(8)))]
    held = {"small": [("n0", 0)], "other": [("n1", 3)]}
    blocks = [Block("small", "a", 1), Block("other", "a", 1), Block("large", "a", 8)]
    placed = place_blocks(rooms, blocks, held)
    assert placed is not None
    assert len({node for node, _ in placed[2]}) == 1
    assert sum(placed[i][0] == held[owner][0] for i, owner in enumerate(["small", "other"])) == 1


def test_shares_stay_where_they_are_and_fill_gpus() -> None:
    """A share keeps its GPU, and others join it while quarters and memory last."""
    shares = [Share("a", "x", 2, 30.0), Share("b", "x", 1, 40.0), Share("c", "x", 1, 40.0)]
    opened = place_shares(shares, {"x": 80.0}, {"a": [(("n", 3), 0)]})
    assert opened[0][1] == ("n", 3)
    assert sorted(len(on) for _, _, on in opened) == [1, 2]
