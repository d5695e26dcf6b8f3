"""Many nodes are written as ranges, and a range never claims a node that is not in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libra_plan.planner.report.node_ranges import node_ranges, node_spans


def test_numbers_count_and_not_their_spelling():
    """`node10` follows `node9`, not `node1`."""
    names = [f"node{at}" for at in (10, 1, 0, 9, 8, 2, 12)]
    assert node_spans(names) == ["node0…node2", "node8…node10", "node12"]
    assert node_spans(["rack-a", "rack-b"]) == ["rack-a", "rack-b"]


@given(st.sets(st.integers(0, 60), min_size=1))
def test_spans_hold_exactly_the_nodes(numbers):
    """A reader who counts the nodes of the spans must come to the nodes of the plan."""
    read = set()
    for span in node_spans([f"n{number}" for number in numbers]):
        first, _, last = span.partition("…")
        read |= set(range(int(first[1:]), int((last or first)[1:]) + 1))
    assert read == numbers


def test_a_line_stays_a_line():
    """Every second of a thousand nodes is no range; the map says where it begins and ends."""
    text = node_ranges([f"node{at}" for at in range(0, 1000, 2)])
    assert text == "node0 node2 node4 node6 … node998"
