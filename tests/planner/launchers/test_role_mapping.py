"""Which role is which part of a framework, or why none fits."""

from __future__ import annotations

import launch_cases
import plans
import pytest
from framework_cases import FRAMEWORKS, emit, values

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.role_mapping import map_roles
from libra_plan.planner.plan import MemoryMode


def test_engines_that_straddle_nodes_unevenly_are_refused():
    """A010: one engine over two nodes ran at a quarter of the speed."""
    replicas = [
        [*plans.span("n0", 0, 3), *plans.span("n1", 0, 1)],
        [*plans.span("n1", 1, 2), *plans.span("n0", 3, 2)],
    ]
    role = plans.role("rollout", replicas, tp=4)
    manifest = plans.manifest_of(plans.cluster(5, 3), plans.running("t", [role]), coupling=launch_cases.ASYNC)
    reasons = []
    assert map_roles(manifest.spec.tasks[0], "verl", reasons) is None
    assert any("t/rollout" in reason for reason in reasons)


def test_a_judge_and_commands_of_environments_have_no_part():
    """Left out in silence, they would not run."""
    for name in FRAMEWORKS:
        with pytest.raises(ManifestError) as caught:
            emit(name, launch_cases.judged())
        assert "judged/judge: no part for a judge" in caught.value.got
        assert "judged/env" in caught.value.got


def test_a_critic_that_scores_is_the_one_that_trains():
    """Frameworks have one critic, in one place."""
    four = [[gpu] for gpu in plans.span("n0", 0, 4)]
    roles = [plans.role(name, four) for name in ("actor", "rollout", "critic", "values")]
    where = plans.cluster(8)
    good = plans.manifest_of(where, plans.running("t", roles, memory_mode=MemoryMode.SLEEP))
    assert "critic.ulysses_sequence_parallel_size" in values(emit("verl", good), "t", "verl")
    other = [*roles[:3], plans.role("values", [["n0:0"]])]
    with pytest.raises(ManifestError, match="one critic both scores and trains"):
        emit("verl", plans.manifest_of(where, plans.running("t", other, memory_mode=MemoryMode.SLEEP)))
    alone = [*roles[:2], roles[3]]
    with pytest.raises(ManifestError, match="none that trains"):
        emit("verl", plans.manifest_of(where, plans.running("t", alone, memory_mode=MemoryMode.SLEEP)))
