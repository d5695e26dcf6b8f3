"""Numbers that contradict each other, and GPUs that are busy with nothing."""

from __future__ import annotations

import pytest

from libra_plan.planner.telemetry.balance import balance_findings, hang_finding
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
    assert list(balance_findings([window(tokens)])) == []


def test_a053_tokens_counted_by_every_rank_of_a_group_are_found():
    """Twice what batch and length imply, to the token, is no padding."""
    (finding,) = balance_findings([window(2 * 4 * 8 * 1024)])
    assert (finding.code, finding.role) == ("tokens-unbalanced", "actor")
    assert "counted 2 times over" in finding.text


def test_tokens_that_fit_nothing_are_found():
    """Cumulative tokens taken for a step's own grow out of any bound (A054)."""
    (finding,) = balance_findings([window(4 * 8 * 1024 * k) for k in (1, 2, 4, 6)])
    assert "3.25 ×" in finding.text


def test_windows_that_do_not_say_enough_are_not_judged():
    """No batch, no verdict."""
    assert list(balance_findings([window(5.0, batch=None), window(None)])) == []


PROGRESS = [window(100, start_s=10.0 * at) for at in range(6)]  # the last ends at 60 s


def test_a049_busy_gpus_without_progress_are_a_hang():
    """100 % at 70 W and no token for minutes is NCCL spinning, not work."""
    finding = hang_finding("t", "actor", PROGRESS, 300.0, utilisation=1.0, power_w=70.0)
    assert finding.code == "hang"
    assert "no progress for 240 s" in finding.text
    assert "70 W" in finding.text


@pytest.mark.parametrize(
    ("now_s", "utilisation", "why"),
    [
        (100.0, 1.0, "a minute is not long"),
        (300.0, 0.3, "GPUs that rest wait for somebody"),
        (300.0, None, "unknown is not busy"),
    ],
)
def test_what_is_no_hang(now_s, utilisation, why):
    """A false alarm stops a run that works."""
    assert hang_finding("t", "actor", PROGRESS, now_s, utilisation=utilisation) is None, why


def test_a_role_with_long_steps_gets_the_time_they_take():
    """Steps of 20 minutes are no hang after 30."""
    slow = [window(100, start_s=1200.0 * at) for at in range(4)]
    assert hang_finding("t", "actor", slow, 3610.0 + 1800.0, utilisation=1.0) is None
    assert hang_finding("t", "actor", slow, 3610.0 + 3700.0, utilisation=1.0).code == "hang"


def test_waiting_windows_are_no_progress():
    """Lines that only tell of waits do not show that anything got done."""
    waits = WorkWindow(start_s=290.0, end_s=299.0, task="t", role="actor", waiting_s=9.0)
    assert hang_finding("t", "actor", [*PROGRESS, waits], 300.0, utilisation=1.0).code == "hang"
