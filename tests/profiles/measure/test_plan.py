import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import ProfileError
from libra_plan.profiles.measure.plan import (
    WORKS,
    PlannedPoint,
    default_plan,
    informative_order,
    read_points_plan,
)

SHAPES = st.lists(
    st.builds(PlannedPoint, st.integers(1, 512), st.integers(1, 70000)), min_size=1, max_size=12, unique=True
)


def distance(a: PlannedPoint, b: PlannedPoint) -> float:
    return math.dist(
        (math.log2(a.batch_sequences), math.log2(a.seq_len_tokens)),
        (math.log2(b.batch_sequences), math.log2(b.seq_len_tokens)),
    )


@given(SHAPES)
def test_every_next_point_is_the_farthest_from_those_before(points: list[PlannedPoint]) -> None:
    """So a run that ends early has seen the whole range, none twice and none left out."""
    ordered = informative_order(points)
    assert sorted(ordered) == sorted(points)
    assert ordered[0].tokens == min(point.tokens for point in points)
    for number in range(1, len(ordered)):
        gaps = [min(distance(p, q) for q in ordered[:number]) for p in ordered[number:]]
        assert gaps[0] == pytest.approx(max(gaps))


@given(SHAPES, st.randoms())
def test_the_order_does_not_depend_on_how_points_are_listed(points: list[PlannedPoint], rng: object) -> None:
    """A restarted run must go on where the first one stopped."""
    shuffled = list(points)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert informative_order(shuffled) == informative_order(points)


@pytest.mark.parametrize("work", WORKS)
def test_default_plans_cover_short_and_long(work: str) -> None:
    """From 256 to 32,768 tokens and from one sequence on, without repeats."""
    plan = default_plan(work)
    assert len(set(plan)) == len(plan)
    assert {256, 32768} <= {point.seq_len_tokens for point in plan}
    if not work.startswith("decode"):
        assert max(point.tokens for point in plan) == 65536


def test_a_plan_file_gives_the_points_of_each_work(tmp_path: Path) -> None:
    """Only the works asked for are returned; a work without rows is absent and gets its default."""
    path = tmp_path / "plan.csv"
    path.write_text("work,batch_sequences,seq_len_tokens\ntrain,2,64\ndecode,1,8\ntrain,1,32\n")
    assert read_points_plan(path, ["train", "score"]) == {"train": (PlannedPoint(2, 64), PlannedPoint(1, 32))}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("prefill,1,8", "unknown work"),
        ("train,one,8", "not a point"),
        ("train,1", "not a point"),
        ("train,0,8", "1"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, row: str, message: str) -> None:
    """The user must find it among hundreds."""
    path = tmp_path / "plan.csv"
    path.write_text(f"work,batch_sequences,seq_len_tokens\ntrain,1,8\n{row}\n")
    with pytest.raises(ProfileError, match=rf"plan\.csv:3: .*{message}"):
        read_points_plan(path, ["train"])
