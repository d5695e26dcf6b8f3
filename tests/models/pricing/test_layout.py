"""Which numbers of replicas a role is priced with."""

import msgspec
import pytest
from affine_profile import profile_file
from pricing_cases import ACTOR, WORK, price_of, role_of, task_of

from libra_plan.models.pricing.layout import replica_counts


def test_samples_that_must_divide_restrict_the_replicas():
    """A framework that needs samples ÷ dp whole says so in its profile's flags."""
    file = profile_file("train", flags={"samples_divide_by_dp": True})
    priced = role_of(price_of(task_of(ACTOR), files=[file]), "actor")
    assert [option.replicas for option in priced.options] == [1, 2, 4, 8]


def test_more_replicas_than_samples_are_never_offered():
    """Four samples cannot keep eight replicas busy (A086)."""
    work = msgspec.structs.replace(WORK, samples=4)
    for name in ("rollout", "reference", "actor"):
        options = role_of(price_of(task_of(work_per_step=work)), name).options
        assert max(option.replicas for option in options) == 4


def test_replica_counts_are_all_up_to_64_gpus_then_whole_nodes():
    """Large clusters are priced at counts that fill nodes."""
    counts = replica_counts(1, 1, 128, 10**6, 8)
    assert counts[:64] == tuple(range(1, 65))
    assert counts[64:] == tuple(range(72, 129, 8))


def test_replica_counts_that_gain_nothing_are_left_out():
    """With 64 items, 17 to 21 replicas all leave 4 on the busiest; whole nodes stay."""
    counts = replica_counts(1, 1, 64, 64, 8)
    assert [count for count in counts if 16 <= count <= 24] == [16, 22, 24]
    assert counts[-1] == 64


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((2, 1, 8, 100, 8), (1, 2, 3, 4)),
        ((2, 5, 8, 100, 8), (3, 4)),  # at least 5 GPUs are 3 replicas of 2
        ((1, 1, 8, 3, 8), (1, 2, 3)),
        ((2, 1, 8, 100, 8, 6), (3,)),
        ((2, 1, 8, 100, 8, 5), ()),  # 5 pinned GPUs are no whole number of replicas
        ((16, 1, 8, 100, 8), ()),
    ],
)
def test_replica_counts_obey_the_role_limits(arguments, expected):
    """Minimum, samples, replica size and pinned GPUs bound the counts."""
    assert replica_counts(*arguments) == expected
