"""Pools: which options of their roles are combined, on how many blocks, counted by hand."""

from __future__ import annotations

import pytest

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import exactly
from libra_plan.planner.configurations.capacity import ClassCapacity
from libra_plan.planner.configurations.pools import pool_options, role_options
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Role, StageOption

ROOMS = {"a": ClassCapacity("a", 8, 1000.0, (8,), 8, ("n0",), {"n0": "n0"})}


def option(seconds: float, replicas: int, tp: int = 1, static_mib: float = 100.0) -> StageOption:
    peak_mib = static_mib + 300.0
    return StageOption(
        "a", Layout(tp=tp), replicas, exactly(seconds, "s"), peak_mib, static_mib, 10.0, static_mib, 0.5, 1.0
    )


def pools(*roles: Role, **how: object) -> list[tuple[int, int, MemoryMode, float]]:
    table = pool_options([role_options(role, ROOMS) for role in roles], **how)
    made = [each.pool for each in table.all_options()]
    seconds = table.rows["time_s"].tolist()
    return [(p.block_gpus, p.blocks, p.memory_mode, s) for p, s in zip(made, seconds, strict=True)]


def test_more_gpus_are_kept_only_where_they_are_faster() -> None:
    """Four replicas that are no faster than two are no use; three that are faster stay."""
    role = Role("r", "rollout", (option(10.0, 1), option(6.0, 2), option(5.0, 3), option(6.0, 4)))
    stays = MemoryMode.RESIDENT
    assert pools(role) == [(1, 1, stays, 10.0), (1, 2, stays, 6.0), (1, 3, stays, 5.0)]
    assert pools(role, least_gpus=4)[-1] == (1, 4, stays, 6.0)


def test_roles_in_turn_take_the_largest_replica_as_block() -> None:
    """The actor needs pairs, and a pair holds two replicas of the rollout: one pair does both in 10 s."""
    rollout = Role("r", "rollout", (option(10.0, 1), option(6.0, 2)))
    actor = Role("t", "actor_train", (option(4.0, 1, tp=2),))
    assert pools(rollout, actor) == [(2, 1, MemoryMode.RESIDENT, 10.0)]


@pytest.mark.parametrize(
    ("static_mib", "modes"), [(340.0, [MemoryMode.RESIDENT]), (360.0, [MemoryMode.SLEEP])]
)
def test_roles_that_do_not_fit_beside_each_other_sleep(static_mib: float, modes: list[MemoryMode]) -> None:
    """Beside 340 MiB of the other a role peaks at 980 of 1000 MiB, beside 360 at 1020: sleep costs 1.5 s."""
    roles = [Role(name, "rollout", (option(5.0, 1, static_mib=static_mib),)) for name in ("x", "y")]
    found = pools(*roles)
    assert [mode for _, _, mode, _ in found] == modes
    assert [seconds for *_, seconds in found] == [10.0 if modes == [MemoryMode.RESIDENT] else 13.0]


def test_roles_that_fill_their_pool_take_all_of_it() -> None:
    """One replica beside two would leave a GPU idle in its turn."""
    one_or_two = Role("r", "rollout", (option(6.0, 1), option(5.0, 2)))
    two = Role("t", "actor_train", (option(4.0, 2),))
    assert pools(one_or_two, two, fill=True) == [(1, 2, MemoryMode.RESIDENT, 9.0)]
    assert pools(Role("r", "rollout", (option(6.0, 1),)), two, fill=True) == []
    assert pools(Role("r", "rollout", (option(6.0, 1),)), two) == [(1, 2, MemoryMode.RESIDENT, 10.0)]


def test_options_beyond_limits_are_left_out() -> None:
    """Limits of the role, GPUs of the cluster and memory of a GPU each rule options out."""
    options = (option(9.0, 1), option(5.0, 2), option(3.0, 4), option(2.0, 9), option(1.0, 3, static_mib=800))
    usable = role_options(Role("r", "rollout", options, min_gpus=2), ROOMS).options
    assert [each.replicas for each in usable] == [2, 4]
    assert role_options(Role("r", "rollout", options, max_gpus=1), ROOMS).options == options[:1]
