"""Replicas that change between training and rollout of one task: when, and when not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loops import Loop, policy, running_best, world

from libra_plan.planner.controller.elastic import ElasticPools, elastic_pools
from libra_plan.planner.controller.hysteresis import ElasticPolicy, ElasticTask, ReplanPolicy
from libra_plan.planner.controller.state import Rung
from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind, Problem, Task
from libra_plan.planner.tables import table_task
from libra_plan.planner.telemetry.observations import RoleLoad
from libra_plan.planner.verify import violations_of

SPEC = ElasticTask(training="train", rollout="rollout")


def rl(rollout: float, train: float = 1.0, *, gpus: int = 8, unit: int = 1) -> Task:
    """Make an async task of two separate roles on all the GPUs; factors stretch their times."""
    times = {count: 40.0 / count for count in range(1, gpus + 1)}
    roles = {
        "train": {c: t * train for c, t in times.items()},
        "rollout": {c: t * rollout for c, t in times.items()},
    }
    return table_task(
        "rl",
        1.0,
        roles,
        Coupling(CouplingKind.ASYNC, staleness=2),
        arrangements=[Arrangement.SEPARATE],
        replica_gpus={"train": unit},
        restart_s=600.0,
        min_gpus=gpus,
        max_gpus=gpus,
    )


def elastic_policy(**fields: object) -> ReplanPolicy:
    made = policy(stay={"role_s": 0.0}, rule={"looks_up": 2})
    tasks = ElasticPolicy(tasks={"rl": SPEC}, **fields)
    return type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | {"elastic": tasks})


def drifted(rollout: float, *, unit: int = 1) -> Problem:
    """Let the plan of even times run while the rollout takes so many times as long."""
    running = running_best(world(8, [rl(1.0, unit=unit)]))
    return replace(running, tasks=(rl(rollout, unit=unit),))


def split(loop: Loop) -> tuple[int, int]:
    roles = {role.role: sum(map(len, role.replicas)) for role in loop.problem.running[0].roles}
    return roles["train"], roles["rollout"]


def test_a_unit_shifts_after_looks_in_a_row() -> None:
    """A090: training waits for the rollout, so one replica changes over, at a tenth of a restart's cost."""
    loop = Loop(drifted(1.6), elastic_policy())
    assert loop.look().decision.rung is Rung.KEEP
    looked = loop.look()
    assert looked.decision.rung is Rung.ELASTIC
    assert split(loop) == (3, 5)
    assert looked.decision.plan is not None
    assert violations_of(looked.problem, looked.decision.plan) == []
    assert any("elastic" in note for note in looked.decision.notes)


def test_balance_is_left_alone() -> None:
    """Within the dead band nothing shifts, and after a shift nothing asks for the way back."""
    loop = Loop(drifted(1.0), elastic_policy())
    loop.looks(6)
    assert loop.moves == []
    loop = Loop(drifted(1.7), elastic_policy())
    loop.looks(8)
    assert all(action == "shift" for _, _, action in loop.moves)
    assert len(loop.moves) <= 1


def test_survivors_pressure_is_looked_ahead() -> None:
    """The rollout that loses a replica takes over its requests: N/(N − 1) must stay below the threshold."""
    problem = running_best(world(8, [rl(1.0)]))
    problem = replace(problem, tasks=(rl(0.6),))
    calm = Loop(problem, elastic_policy())
    calm.looks(3, loads=(RoleLoad("rl", "rollout", queue=0.2),))
    assert calm.moves
    pressed = Loop(problem, elastic_policy())
    pressed.looks(3, loads=(RoleLoad("rl", "rollout", queue=0.7),))
    assert [action for _, _, action in pressed.moves if action == "shift"] == []


def test_a_pressed_rollout_gets_a_unit_in_spite_of_even_times() -> None:
    """A full queue asks for more rollout before stage times show it."""
    loop = Loop(drifted(1.12), elastic_policy())
    loop.looks(2, loads=(RoleLoad("rl", "rollout", queue=0.95),))
    assert split(loop) == (3, 5) or loop.moves == []


def test_stale_samples_stop_the_rollout_from_growing() -> None:
    """A035: at the staleness bound more rollout makes samples that training must not use."""
    loop = Loop(drifted(1.6), elastic_policy())
    loop.looks(4, loads=(RoleLoad("rl", "rollout", staleness=2.0),))
    assert [action for _, _, action in loop.moves if action == "shift"] == []


def test_units_are_whole_replicas() -> None:
    """A replica of two GPUs changes over as two rollout replicas, never as half of one."""
    loop = Loop(drifted(4.0, unit=2), elastic_policy())
    loop.looks(2)
    assert split(loop) == (2, 6)


def test_core_and_elastic_pools_come_from_the_forecasts_bounds() -> None:
    """What the shortest and the longest rollout would split alike is core; the rest may change over."""
    problem = running_best(world(8, [rl(1.0)]))
    task = problem.tasks[0]
    wide = tuple(
        replace(o, time_s=replace(o.time_s, low=o.time_s.value * 0.5, high=o.time_s.value * 2.0))
        for o in task.roles[1].options
    )
    problem = replace(
        problem, tasks=(replace(task, roles=(task.roles[0], replace(task.roles[1], options=wide))),)
    )
    pools = elastic_pools(problem, problem.running[0], SPEC)
    assert isinstance(pools, ElasticPools)
    assert pools.training_gpus + pools.rollout_gpus + pools.elastic_gpus == 8
    assert pools.elastic_gpus >= 2


def test_a_policy_that_names_no_roles_of_the_task_is_noted() -> None:
    """A slip in the policy file is a sentence in every look, not a crash in the loop."""
    spec = ElasticTask(training="train", rollout="nobody")
    made = elastic_policy()
    names = {name: getattr(made, name) for name in made.__struct_fields__}
    loop = Loop(drifted(1.6), type(made)(**names | {"elastic": ElasticPolicy(tasks={"rl": spec})}))
    assert "rl has no roles train and nobody" in loop.look().decision.notes
    assert elastic_pools(loop.problem, loop.problem.running[0], spec) is None


def roomy(rollout: float, *, join_s: float | None = 4.0) -> Loop:
    """Let the plan of eight GPUs run on a cluster of ten: two are nobody's."""
    small = running_best(world(8, [rl(1.0)]))
    tasks = (replace(rl(rollout, gpus=10), min_gpus=8, max_gpus=10),)
    wide = replace(world(10, list(tasks)), running=small.running)
    made = elastic_policy()
    spec = ElasticTask(training="train", rollout="rollout", join_s=join_s)
    names = {name: getattr(made, name) for name in made.__struct_fields__}
    caps = {"elastic": ElasticPolicy(tasks={"rl": spec}, ratio_up=9.0, ratio_down=0.1, pressure_up=1.0)}
    return Loop(wide, type(made)(**names | caps))


def test_a_replica_joins_on_gpus_that_nobody_holds() -> None:
    """Idle GPUs need no dead band: the slower role takes one when two looks say that steps get shorter."""
    loop = roomy(1.1)
    assert loop.look().decision.rung is Rung.KEEP
    looked = loop.look()
    assert looked.decision.rung is Rung.ELASTIC
    assert looked.decision.moves[0].after == "join-rollout"
    assert (looked.decision.moves[0].gpus_before, looked.decision.moves[0].gpus_after) == (8, 9)
    assert looked.decision.plan is not None
    assert violations_of(looked.problem, looked.decision.plan) == []
    loop.looks(6)
    assert sum(split(loop)) == 10


def test_no_replica_joins_where_the_framework_cannot_or_nothing_gets_faster() -> None:
    """Without `join_s` GPUs stay idle rather than break a run; and noise alone must move nothing."""
    loop = roomy(1.1, join_s=None)
    loop.looks(4)
    assert "shift" not in [action for _, _, action in loop.moves]
    loop = roomy(1.1, join_s=3000.0)
    loop.looks(4)
    assert "shift" not in [action for _, _, action in loop.moves]


@pytest.mark.parametrize("rollout", [0.7, 1.4])
def test_a_shift_after_which_the_other_role_would_ask_for_the_way_back_is_not_made(rollout: float) -> None:
    """The step would get shorter, but the ratio would lie beyond the other threshold: N → N − 1 → N."""
    loop = Loop(drifted(rollout), elastic_policy())
    loop.looks(4)
    assert "shift" not in [action for _, _, action in loop.moves]


def test_a_shift_ends_no_stay() -> None:
    """The task was not moved, so the expected stay of placements says nothing of it."""
    loop = Loop(drifted(1.6), elastic_policy())
    loop.looks(2)
    assert [action for _, _, action in loop.moves] == ["shift"]
    assert loop.state.stays.ended == 0
    assert loop.state.clock_for("rl").shifted_s == 60.0


def test_a_replica_joins_on_the_node_with_the_fewest_gpus_that_are_enough() -> None:
    """Larger gaps are left for what needs them."""
    loop = roomy(1.1)
    tasks = (replace(rl(1.1, gpus=17), min_gpus=8, max_gpus=17),)
    loop.problem = replace(world(17, list(tasks), per_node=8), running=loop.problem.running)
    last = loop.problem.cluster.nodes[-1]
    assert len(last.gpus) == 1
    loop.looks(2)
    used = {gpu for role in loop.problem.running[0].roles for gpus in role.replicas for gpu in gpus}
    assert last.gpus[0].id in used
    assert len(used) == 9
