"""Numbers that contradict each other."""

from __future__ import annotations

import pytest

from libra_plan.planner.telemetry.balance import imbalances
from libra_plan.planner.telemetry.work_windows import WorkWindow


def window(tokens, *, steps=4.0, batch=8.0, length=1024.0, start_s=0.0):
    return WorkWindow(
        start_s=start_s,
        end_s=start_s + 10.0,
        task="t",
        role="actor",
        tokens=tokens,
        steps=steps,
        batch_sequences=batch,
        seq_len_tokens=length,
    )


@pytest.mark.parametrize("tokens", [4 * 8 * 1024, 4 * 8 * 1024 * 1.2, 4 * 8, 4 * 8 * 1024 * 0.9])
def test_tokens_that_batch_and_length_imply_are_no_finding(tokens):
    """A pass goes over every token, padded or not; a decoding step writes one per sequence."""
    assert list(imbalances([window(tokens)])) == []


def test_a053_tokens_counted_by_every_rank_of_a_group_are_found():
    """Twice what batch and length imply, to the token, is no padding."""
    (finding,) = imbalances([window(2 * 4 * 8 * 1024)])
    assert (finding.code, finding.role) == ("tokens-unbalanced", "actor")
    assert "counted 2 times over" in finding.text


def test_tokens_that_fit_nothing_are_found():
    """Cumulative tokens taken for a step's own grow out of any bound (A054)."""
    (finding,) = imbalances([window(4 * 8 * 1024 * k) for k in (1, 2, 4, 6)])
    assert "3.25 ×" in finding.text


def test_windows_that_do_not_say_enough_are_not_judged():
    """No batch, no verdict."""
    assert list(imbalances([window(5.0, batch=None), window(None)])) == []


def test_amounts_whose_product_is_nothing_are_not_judged():
    """They would be divided by."""
    assert list(imbalances([window(5.0, steps=1e-300, batch=1e-300, length=1e-300)])) == []
