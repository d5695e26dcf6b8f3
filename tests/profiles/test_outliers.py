"""A robust fit tells a wrong row from noise."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.profiles.outliers import GROSS, outliers
from libra_plan.profiles.points import PointRow
from libra_plan.profiles.schema import Point


def rows(wrong=None, factor=1.0, noise=lambda index: 1.0):
    """Make a decode table of 16 rows; row `wrong` is off by a factor."""
    sizes = [(batch, length) for batch in (1, 4, 16, 64) for length in (512, 1024, 2048, 4096)]
    return [
        PointRow(
            index,
            Point(
                batch_sequences=b,
                seq_len_tokens=s,
                time_s=(0.005 + 1e-4 * b + 2e-8 * b * s) * noise(index) * (factor if index == wrong else 1.0),
            ),
        )
        for index, (b, s) in enumerate(sizes)
    ]


@given(
    st.sampled_from([i for i in range(16) if i not in (0, 3, 12, 15)]), st.sampled_from([0.3, 0.6, 1.5, 4.0])
)
@settings(deadline=None, max_examples=48)
def test_the_wrong_row_is_found_and_it_alone(wrong, factor):
    """Anywhere but at a corner of the table, with noise of 1 % on the others."""
    found = outliers(rows(wrong, factor, lambda index: 1 + 0.01 * (-1) ** index), "decode")
    assert [item.row.line for item in found] == [wrong]


def test_noise_is_no_outlier():
    """5 % up and down is how serving tables are."""
    assert outliers(rows(noise=lambda index: 1 + 0.05 * (-1) ** index), "decode") == ()


def test_gross_errors_are_three_times_off():
    """Twice the time may be an engine's setting; three times is not."""
    assert outliers(rows(5, 2.0), "decode", GROSS) == ()
    assert len(outliers(rows(5, 4.0), "decode", GROSS)) == 1


def test_few_rows_are_not_judged():
    """Seven rows and four terms: anything fits, or nothing does."""
    assert outliers(rows(3, 10.0)[:7], "decode") == ()


@pytest.mark.parametrize("phase", ["score", "train"])
def test_launch_bound_passes_are_not_outliers(phase):
    """Small passes take as long as their launches, whatever their size."""
    table = [
        PointRow(i, Point(batch_sequences=b, seq_len_tokens=s, time_s=max(0.03, 1e-5 * b * s)))
        for i, (b, s) in enumerate((b, s) for b in (1, 2, 8, 32) for s in (128, 512, 2048, 8192))
    ]
    assert outliers(table, phase) == ()
    late = msgspec.structs.replace(table[9].point, time_s=10.0)
    assert [item.row.line for item in outliers([*table[:9], PointRow(9, late), *table[10:]], phase)] == [9]
