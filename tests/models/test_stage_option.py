"""What an option of a role counts and says."""

import pytest

from libra_plan.models.parallelism import Layout, RangedReplica
from libra_plan.models.quantities import exactly
from libra_plan.models.stage_option import Coupling, CouplingKind, StageOption


def option(layout=Layout(tp=2), replicas=3, mix=(), sleep_s=1.0, wake_s=2.0):
    return StageOption(
        "h200_sxm", layout, replicas, exactly(1.0, "s"), 9.0, 8.0, 7.0, 6.0, sleep_s, wake_s, mix=mix
    )


def test_gpus_and_form_of_equal_replicas():
    """Three replicas of tp 2 are six GPUs."""
    plain = option()
    assert (plain.gpus, plain.sizes, plain.form) == (6, ((2, 3),), "3 × tp2")
    assert plain.layouts == (Layout(tp=2),) * 3


def test_gpus_and_form_of_a_mix():
    """Every replica counts with its own layout, largest first."""
    ranged = [RangedReplica(layout, at, at + 1, 1, 1.0) for at, layout in enumerate(
        (Layout(tp=4), Layout(), Layout())
    )]  # fmt: skip
    mixed = option(Layout(tp=4), 3, tuple(ranged))
    assert (mixed.gpus, mixed.sizes, mixed.form) == (6, ((4, 1), (1, 2)), "1 × tp4 + 2 × tp1")


@pytest.mark.parametrize(("sleep_s", "wake_s", "both"), [(1.0, 2.0, 3.0), (None, None, 0.0)])
def test_falling_asleep_and_waking_are_charged_together(sleep_s, wake_s, both):
    """A role that cannot sleep is charged nothing for it."""
    assert option(sleep_s=sleep_s, wake_s=wake_s).switch_s == both


@pytest.mark.parametrize(
    ("coupling", "streams"),
    [
        (Coupling(CouplingKind.SYNC), False),
        (Coupling(CouplingKind.ASYNC, 1), True),
        (Coupling(CouplingKind.ASYNC, 1, batches=True), False),
        (Coupling(CouplingKind.PIPELINED, 0, 4), False),
    ],
)
def test_only_async_rollouts_without_batches_never_drain(coupling, streams):
    """All others end a step before they begin the next."""
    assert coupling.streams is streams
