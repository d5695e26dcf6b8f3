"""Which splits a model allows."""

from dataclasses import replace

import msgspec
import pytest
from affine_profile import SHAPE

from libra_plan.models.parallelism import Layout, layout_faults


def test_heads_that_do_not_divide_are_named_with_the_legal_degrees():
    """28 heads over 8 ranks is illegal; 1, 2, 4 and more are offered (A005)."""
    (heads,) = [fault for fault in layout_faults(Layout(tp=8), SHAPE) if "heads" in fault]
    assert "28 heads" in heads
    assert "legal: 1, 2, 4, 28" in heads


@pytest.mark.parametrize("layout", [Layout(), Layout(tp=2), Layout(tp=4), Layout(pp=7), Layout(tp=2, cp=2)])
def test_legal_splits_have_no_fault(layout):
    """Degrees that divide heads, layers and the feed-forward size pass."""
    assert layout_faults(layout, SHAPE) == ()


def test_layers_and_experts_divide_too():
    """A pipeline of 5 over 28 layers and experts on a dense model are refused."""
    assert "layers" in layout_faults(Layout(pp=5), SHAPE)[0]
    assert "experts" in layout_faults(Layout(ep=2), SHAPE)[0]
    assert layout_faults(Layout(tp=2, ep=2), msgspec.structs.replace(SHAPE, experts=8)) == ()


def test_gpus_per_replica_do_not_count_experts_twice():
    """Experts live inside the replica's GPUs."""
    assert replace(Layout(tp=4, pp=2), ep=8).gpus_per_replica == 8
