"""Length samples: the law they are drawn from and their tail."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import WorkloadError
from libra_plan.models.lengths import LengthSample, sample_lengths
from libra_plan.profiles.schema import Fixed, Histogram, LogNormal, Trace


def test_fixed_lengths_are_all_the_same():
    """A fixed law has no tail, so mean, longest and ΣS²/ΣS agree."""
    sample = sample_lengths(Fixed(tokens=100), 7)
    assert sample.total == 700
    assert sample.mean == sample.longest == sample.squares_ratio == 100


@given(
    st.floats(10, 5000),
    st.floats(0.05, 1.5),
    st.integers(100, 40_000),
    st.integers(1, 300),
)
def test_truncated_log_normal_never_passes_its_cut(median, sigma, most, count):
    """The sample is ascending, within 1..max, and has no mass piled up at the cut."""
    try:
        sample = sample_lengths(LogNormal(median_tokens=median, sigma=sigma, max_tokens=most), count)
    except WorkloadError:
        assert (math.log(most) - math.log(median)) / sigma < -4
        return
    assert sample.tokens[0] >= 1
    assert sample.longest <= most
    assert (np.diff(sample.tokens) >= 0).all()


def test_truncated_log_normal_has_the_quantiles_of_the_law_below_the_cut():
    """Half the kept mass lies below the truncated median, which differs from the plain one."""
    sample = sample_lengths(LogNormal(median_tokens=1000, sigma=1.0, max_tokens=1000), 2001)
    # below the plain median lies half the mass, so the truncated median is the plain 25 % quantile
    assert sample.tokens[1000] == pytest.approx(1000 * math.exp(-0.674490), rel=2e-3)


def test_log_normal_without_spread_is_fixed():
    """Sigma 0 is a legal way to say that all lengths are the median."""
    assert set(sample_lengths(LogNormal(median_tokens=50, sigma=0, max_tokens=60), 5).tokens) == {50}


def test_cut_below_nearly_all_mass_is_refused():
    """A cut that keeps less than a millionth of the law would sample rounding noise."""
    with pytest.raises(WorkloadError, match="below the cut"):
        sample_lengths(LogNormal(median_tokens=10_000, sigma=0.1, max_tokens=100), 10)


def test_histogram_fills_bins_in_proportion():
    """Counts decide how many of the sample fall into each bin, empty bins hold none."""
    spec = Histogram(edges_tokens=(0, 100, 200, 1000), counts=(3.0, 0.0, 1.0))
    tokens = sample_lengths(spec, 400).tokens
    assert (tokens < 100).sum() == 300
    assert ((tokens >= 100) & (tokens < 200)).sum() == 0
    assert tokens.max() < 1000


def test_trace_of_the_same_size_comes_back_sorted():
    """With as many samples as lengths, the quantile sample is the trace itself."""
    sample = sample_lengths(Trace(file="a.txt"), 4, {"a.txt": [5, 1, 9, 2]})
    assert sample.tokens.tolist() == [1, 2, 5, 9]


def test_unread_trace_is_named():
    """A trace that nobody read must not become an empty sample."""
    with pytest.raises(WorkloadError, match=r"a\.txt"):
        sample_lengths(Trace(file="a.txt"), 4, {})


def test_long_tail_shows_in_the_squares_ratio():
    """95 % of 2k and 5 % of 30k: the mean hides what attention and the last sequence cost (A037)."""
    sample = LengthSample(np.array([2000] * 95 + [30_000] * 5))
    assert sample.mean == 3400
    assert sample.squares_ratio > 4 * sample.mean
    assert sample.longest == 30_000
