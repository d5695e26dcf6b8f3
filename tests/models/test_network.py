"""Traffic between GPUs against sums done by hand."""

import pytest
from affine_profile import SHAPE, profile_file

from libra_plan.models.network import (
    Link,
    all_reduce_s,
    all_to_all_s,
    ring_exchange_s,
    stage_sends_s,
    tensor_reduce_s,
)
from libra_plan.models.parallelism import Layout

SOFTWARE = profile_file("train").software
PER_S = 300.0 * 0.89 * 2**30


def test_a_ring_pays_for_every_hop():
    """64 ranks pass 2 x 63 hops; over the network a hop takes four times as long."""
    near, far = (all_reduce_s(2**30, 64, Link(50.0, across)) for across in (False, True))
    assert near == pytest.approx(0.3e-3 + 126 * 3.4e-6 + 2 * 63 / 64 / (50 * 0.89))
    assert far - near == pytest.approx(126 * 10.6e-6)


def test_ring_attention_passes_every_other_ranks_keys_and_values():
    """Each of 4 ranks receives 3 shares of 8192 tokens: 28 layers x 2 x 4 heads x 128 x 2 bytes each."""
    share = 8192 * 28 * 2 * 4 * 128 * 2
    by_hand = 3 * (28 * 3.4e-6 + share / PER_S)
    found = ring_exchange_s(SHAPE, SOFTWARE, "score", Layout(cp=4), 32768, Link(300.0))
    assert found == pytest.approx(by_hand)
    assert ring_exchange_s(SHAPE, SOFTWARE, "train", Layout(cp=4), 32768, Link(300.0)) == pytest.approx(
        3 * by_hand
    )
    assert ring_exchange_s(SHAPE, SOFTWARE, "train", Layout(tp=4), 32768, Link(300.0)) == 0


def test_recomputation_exchanges_once_more():
    """Full recomputation repeats the forward pass, its traffic too."""
    full = profile_file("train", recompute="full").software
    plain = ring_exchange_s(SHAPE, SOFTWARE, "train", Layout(cp=2), 4096, Link(300.0))
    assert ring_exchange_s(SHAPE, full, "train", Layout(cp=2), 4096, Link(300.0)) == pytest.approx(
        plain * 4 / 3
    )


def test_experts_elsewhere_are_sent_to_and_come_back():
    """1024 tokens on each of 8 ranks, 2 experts a token, 7/8 of them elsewhere, there and back."""
    sent = 1024 * 2 * 3584 * 2
    by_hand = 28 * (2 * 7 * 3.4e-6 + 2 * 7 / 8 * sent / PER_S)
    found = all_to_all_s(SHAPE, SOFTWARE, "score", Layout(tp=8, ep=8), 8192, 2, Link(300.0))
    assert found == pytest.approx(by_hand)
    assert all_to_all_s(SHAPE, SOFTWARE, "score", Layout(tp=8), 8192, 2, Link(300.0)) == 0


def test_stage_borders_pass_activations_both_ways_in_training():
    """Three borders between four stages: 4096 tokens x 3584 x 2 bytes each."""
    once = 3 * (0.3e-3 + 4096 * 3584 * 2 / PER_S)
    assert stage_sends_s(SHAPE, "score", Layout(pp=4), 4096, Link(300.0)) == pytest.approx(once)
    assert stage_sends_s(SHAPE, "train", Layout(pp=4), 4096, Link(300.0)) == pytest.approx(2 * once)


def test_tensor_parallel_sums_by_hand():
    """Two all-reduces a layer forward, two backward, and two more when the forward pass is repeated."""
    full = profile_file("train", recompute="full").software
    moved = 2 * 3 / 4 * 8192 * 3584 * 2 / PER_S
    score = tensor_reduce_s(SHAPE, SOFTWARE, "score", Layout(tp=4), 8192, Link(300.0))
    assert score == pytest.approx(2 * 28 * (moved + 4 * 3.4e-6))
    assert tensor_reduce_s(SHAPE, SOFTWARE, "train", Layout(tp=4), 8192, Link(300.0)) == pytest.approx(
        2 * score
    )
    assert tensor_reduce_s(SHAPE, full, "train", Layout(tp=4), 8192, Link(300.0)) == pytest.approx(3 * score)
    assert tensor_reduce_s(SHAPE, SOFTWARE, "train", Layout(cp=2), 8192, Link(300.0)) == 0
