"""Names that were probably meant."""

import pytest

from libra_plan.profiles.wording import did_you_mean, nearest_first, some_of

PROFILES = [
    f"h200-qwen2.5-{size}-{phase}"
    for size in ("0.5b", "1.5b", "7b")
    for phase in ("decode", "score", "train")
]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("h200-qwen2.5-05b-score", "h200-qwen2.5-0.5b-score"),
        ("h200-qwen2.5-15b-train", "h200-qwen2.5-1.5b-train"),
        ("h200-qwen2.5-7b-decdoe", "h200-qwen2.5-7b-decode"),
        ("H200-Qwen2.5-7B-score", "h200-qwen2.5-7b-score"),
    ],
)
def test_size_and_phase_both_count(wrong, right):
    """The name that differs by the fewest letters is meant, not one of another size or phase."""
    assert did_you_mean(wrong, PROFILES) == f"did you mean `{right}`?"
    assert nearest_first(wrong, PROFILES)[0] == right


def test_a_long_list_is_cut_and_counted():
    """Thirty names in one line hide the one that matters."""
    listed = some_of("h200-qwen2.5-7b-scor", PROFILES)
    assert listed.startswith("h200-qwen2.5-7b-score, ")
    assert listed.endswith(" and 1 more")
    assert listed.count(", ") == 7
    assert some_of("b", ["a", "b"]) == "b, a"
    assert some_of("b", []) == "nothing"


def test_neighbours_that_changed_places_are_found():
    """It is the commonest slip of all."""
    assert did_you_mean("lenght", ["weight", "length"]) == "did you mean `length`?"
    assert did_you_mean("zzzz", ["weight", "length"]) is None


def test_a_wrong_unit_is_told_as_such():
    """The value must be converted, too."""
    assert "convert the value" in did_you_mean("host_memory_gb", ["host_memory_mib"])
