"""What a cost model is asked, and how it refuses."""

import pytest
from fitting import fitted

from libra_plan.models import query as refusals
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query

CURVE = fitted().by_layout[Layout()].time


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(8, 1000), "batch 8, length 1000 tokens, tp1"),
        (Query(8, None, 512, 128, Layout(tp=2)), "batch 8, prompt 512 tokens, output 128 tokens, tp2"),
        (Query(8, 1000, dp=4), "batch 8, length 1000 tokens, tp1, dp4"),
    ],
)
def test_a_query_says_what_it_asks(query, said):
    """Refusals quote it."""
    assert str(query) == said


def test_each_refusal_has_its_four_parts():
    """What is wrong, what was got, what is allowed, and the way out."""
    query = Query(8, 1000)
    for refusal in (
        refusals.incomplete("p", query, "decode"),
        refusals.outside("p", query, CURVE),
        refusals.ran_out_of_memory("p", query, (8.0, 512.0, 1.0)),
        refusals.no_layout(
            "p", Layout(tp=2), (Layout(),), "time", True, ("ep 2 does not divide no experts",)
        ),
        refusals.too_few("p", Layout(), 5, "time"),
        refusals.no_memory("p", query),
        refusals.unknown_link("p", query, within_node=False),
        refusals.does_not_fit("p", query, 100.0, 200.0),
    ):
        assert refusal.what.startswith("p")
        assert refusal.got
        assert refusal.allowed
        assert refusal.way_out


def test_what_was_measured_is_named_as_the_user_counts_it():
    """Domains are kept in octaves; nobody asks in octaves."""
    allowed = refusals.outside("p", Query(8, 1000), CURVE).allowed
    assert "batch 1 to 64 and length 512 to 8192 tokens" in allowed


def test_a_prior_is_offered_only_where_there_is_one():
    """A way out that does not lead out is worse than none."""
    with_prior, without = (
        refusals.no_layout("p", Layout(tp=2), (), "time", prior, ()).way_out for prior in (True, False)
    )
    assert "--allow-prior" in with_prior
    assert "--allow-prior" not in without


def test_a_serving_profile_asks_for_both_of_its_lengths():
    """The words say which cells to fill."""
    assert "prompt_tokens and output_tokens" in refusals.incomplete("p", Query(8), "serve").allowed
