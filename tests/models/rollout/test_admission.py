"""Limits of one replica: every state they allow lies in the measured domain and in memory."""

import pytest
from affine_profile import AffineProfile
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.errors import RefusedError
from libra_plan.models.parallelism import Layout
from libra_plan.models.rollout.admission import frontier_of


@given(
    st.integers(1, 300),
    st.one_of(st.none(), st.integers(1, 300)),
    st.floats(22_000, 140_000),
    st.floats(64, 32_768),
    st.floats(0.01, 1.0),
)
def test_every_allowed_batch_lies_under_the_frontier(share, most, memory, longest, fraction):
    """Any batch ≤ sequences with contexts adding up to ≤ tokens is measured and fits in memory."""
    profile = AffineProfile()
    frontier = frontier_of(profile, Layout(), memory_mib=memory, shortest_context=64, longest_context=longest)
    limits = frontier.admission(share, most)
    assert 1 <= limits.sequences <= min(share, most or share)
    assert limits.tokens >= longest - 1e-6  # the longest trajectory fits alone
    batch = max(1, round(limits.sequences * fraction))
    context = min(limits.tokens / batch, longest)
    # whole batches are floors of the true frontier, so compare with one sequence more
    assert batch <= profile.max_batch(context, memory) + 1


def test_the_reason_names_the_limit_that_binds():
    """The note in the plan says why a replica runs no more at once."""
    profile = AffineProfile()
    roomy = frontier_of(profile, Layout(), memory_mib=1e6, shortest_context=512, longest_context=8192)
    assert roomy.admission(8).reason == "all at once"
    assert "max_concurrency" in roomy.admission(500, 16).reason
    assert "measured domain" in roomy.admission(500).reason
    tight = frontier_of(profile, Layout(), memory_mib=40_000, shortest_context=512, longest_context=8192)
    assert "KV memory" in tight.admission(500).reason


def test_no_room_for_one_trajectory_does_not_advise_more_utilisation():
    """Zero KV blocks is infeasible, and a higher memory utilisation cannot change it (A027)."""
    with pytest.raises(RefusedError) as refusal:
        frontier_of(AffineProfile(), Layout(), memory_mib=12_000, shortest_context=512, longest_context=8192)
    assert "do not fit" in refusal.value.what
    assert refusal.value.got.startswith("17660 MiB")
    assert "cannot help" in refusal.value.way_out


def test_context_beyond_what_was_measured_keeps_the_profiles_own_words():
    """Outside the domain it is not memory that is missing but a measurement."""
    with pytest.raises(RefusedError, match="outside what was measured"):
        frontier_of(
            AffineProfile(), Layout(), memory_mib=140_000, shortest_context=512, longest_context=60_000
        )
