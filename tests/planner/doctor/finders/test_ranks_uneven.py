"""Ranks with unequal work."""

from __future__ import annotations

from itertools import chain

import pytest
from doctor_cases import codes, look, only, work


def ranks(*waits, seconds=1200):
    """Give ranks that wait so many seconds of ten."""
    return chain.from_iterable(
        work("scorer", seconds, rank=rank, waiting_s=waited) for rank, waited in enumerate(waits)
    )


def test_a_rank_that_never_waits_while_the_others_do_is_found():
    """It has more to do than its share."""
    finding = only(look([], ranks(4.0, 4.0, 1.0, 4.0)))
    assert finding.code == "ranks-uneven"
    assert "rank 2" in finding.title
    assert finding.gain.factor == pytest.approx(1 / (1 - (0.9 - 0.675)))


@pytest.mark.parametrize(
    ("waits", "why"),
    [
        ((2.0, 2.0, 1.0, 2.0), "a little more is in every batch"),
        ((4.0, 4.0, None, 4.0), "a rank that does not tell its waits is not judged"),
        ((4.0,), "a single rank holds up nobody"),
        ((10.0, 10.0), "none of them works"),
    ],
)
def test_what_is_nearly_uneven(waits, why):
    """Lengths differ from batch to batch."""
    assert codes(look([], ranks(*waits))) == [], why


def test_a_few_minutes_are_too_short_to_judge():
    """One long batch would decide."""
    assert codes(look([], ranks(4.0, 0.0, seconds=240))) == []
