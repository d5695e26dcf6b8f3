"""How long a turn waits for its tools."""

import numpy as np
import pytest

from libra_plan.profiles.schema import RoleSpec
from libra_plan.profiles.tool_wait import tool_wait_of


def env(mean_s, sigma=None):
    return RoleSpec(id="env", kind="env", tool_wait_s_per_turn=mean_s, tool_wait_sigma=sigma)


def test_without_waits_nothing_waits():
    """A role that states none adds none."""
    assert tool_wait_of([]) == (0.0, 0.0)
    assert tool_wait_of([env(None)]) == (0.0, 0.0)


def test_one_role_keeps_its_own_law():
    """The sum of one wait is that wait."""
    assert tool_wait_of([env(2.0, 1.5)]) == pytest.approx((2.0, 1.5))


def test_two_roles_have_the_mean_and_variance_of_their_sum():
    """Compared with draws: a turn passes through both."""
    rng = np.random.default_rng(0)
    drawn = [
        mean * np.exp(sigma * rng.standard_normal(400_000) - sigma**2 / 2)
        for mean, sigma in ((2, 0.5), (1, 0.8))
    ]
    total = drawn[0] + drawn[1]
    mean, sigma = tool_wait_of([env(2.0, 0.5), env(1.0, 0.8)])
    assert mean == pytest.approx(total.mean(), rel=0.01)
    assert mean**2 * np.expm1(sigma**2) == pytest.approx(total.var(), rel=0.05)
