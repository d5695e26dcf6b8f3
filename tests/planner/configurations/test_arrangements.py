"""The shapes of a task, counted by hand."""

from __future__ import annotations

import pytest

from libra_plan.planner.configurations.arrangements import arrangement_of_shape, task_shapes
from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind, Role, Task


def task(roles: int, kind: CouplingKind, *arrangements: Arrangement) -> Task:
    made = tuple(Role(f"r{at}", "rollout", ()) for at in range(roles))
    return Task("t", 1.0, made, Coupling(kind), frozenset(arrangements or Arrangement))


def test_the_shapes_of_three_roles() -> None:
    """Five partitions in one phase; of two phases one must have two pools: 1 + 2 roles or 2 + 1."""
    shapes = task_shapes(task(3, CouplingKind.SYNC))
    assert sum(len(shape) == 1 for shape in shapes) == 5
    assert sorted(shape for shape in shapes if len(shape) > 1) == [
        (((0,),), ((1,), (2,))),
        (((0,), (1,)), ((2,),)),
    ]


def test_pipelined_pools_are_runs_of_stages() -> None:
    """The first and the last of three stages never share a pool that the middle one is not in."""
    one_phase = [shape[0] for shape in task_shapes(task(3, CouplingKind.PIPELINED)) if len(shape) == 1]
    assert len(one_phase) == 4
    assert ((0, 2), (1,)) not in one_phase


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((((0, 1),),), Arrangement.COLOCATED),
        ((((0,), (1,)),), Arrangement.SEPARATE),
        ((((0, 2), (1,)),), Arrangement.HYBRID),
        ((((0,),), ((1,), (2,))), Arrangement.HYBRID),
    ],
)
def test_names_of_shapes(shape, name: Arrangement) -> None:
    """A task takes only shapes whose name it allows; a single role has one shape anyway."""
    assert arrangement_of_shape(shape) is name
    allowed = task_shapes(task(3, CouplingKind.SYNC, name))
    assert all(arrangement_of_shape(each) is name for each in allowed)
    assert task_shapes(task(1, CouplingKind.SYNC, name)) == [(((0,),),)]
