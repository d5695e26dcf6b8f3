"""Sizes of a batch, from a profile and the memory there is."""

import pytest

import libra_plan as lp
from libra_plan.errors import InputError

PROFILE = "h200-qwen2.5-1.5b-train"


@pytest.fixture
def lengths(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("\n".join(["1024", "2048", "512"] * 20))
    return file


def test_each_size_needs_what_it_needs_and_the_largest_leaves_the_margin(lengths):
    """The table is what the advice follows: sizes that fit, one step of them at a time."""
    found = lp.batch_sizes(PROFILE, lengths, limit_mib=60_000, samples_per_rank=32, current=2)
    needed = [row.needed_mib for row in found.sizes if row.needed_mib is not None]
    assert needed == sorted(needed)
    assert all(row.fits == (row.needed_mib <= 60_000) for row in found.sizes if row.needed_mib is not None)
    assert all(row.accumulation * row.size == 32 for row in found.sizes)
    largest = next(row for row in found.sizes if row.size == found.largest)
    assert largest.needed_mib * 1.1 <= 60_000
    assert (found.advice.size, found.windows, found.changes) == (2, 1, 0)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"samples_per_rank": 32}, "how much memory"),
        ({"samples_per_rank": 32, "limit_mib": 1e5, "recording": "run"}, "how much memory"),
        ({"limit_mib": 1e5}, "a training rank's batch"),
        ({"samples_per_rank": 32, "limit_mib": 1e5, "current": 5}, "divides"),
    ],
)
def test_what_is_not_known_is_refused(lengths, fields, said):
    """A guess of memory or batch would be an out-of-memory error later."""
    with pytest.raises(InputError, match=said):
        lp.batch_sizes(PROFILE, lengths, **fields)


def test_a_profile_that_scores_has_no_batch_to_recommend(lengths):
    """Its batch follows from the tokens of a pass."""
    with pytest.raises(InputError, match="train, decode or serve"):
        lp.batch_sizes("h200-qwen2.5-1.5b-score", lengths, limit_mib=1e5)
