"""A relaxation changes one limit, by as much as its words say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plans import cluster as cluster_of

from libra_plan.models.topology import GpuId
from libra_plan.planner.explain.relax import Relaxation, relaxed
from libra_plan.planner.problem import Coupling, CouplingKind, Problem, Role, Task

ROLE = Role("actor", "actor_train", (), min_gpus=2, max_gpus=4, pinned_gpus=frozenset({GpuId("n0", 0)}),
            excluded_gpus=frozenset({GpuId("n0", 1), GpuId("n0", 2)}))  # fmt: skip
TASK = Task("rl", 1.0, (ROLE,), Coupling(CouplingKind.SYNC), min_gpus=3, max_gpus=6)


@pytest.fixture
def problem():
    nodes = tuple(
        replace(node, cpu_cores=8.0, host_memory_mib=1000.0, nvlink_domain=None) for node in cluster_of(4, 2)
    )
    return Problem(replace(cluster_of(4, 2), nodes=nodes), (TASK,))


@pytest.mark.parametrize(
    ("code", "subject", "needed", "words"),
    [
        ("task-max", "", 8, "raise max_gpus of rl from 6 to 8"),
        ("task-min", "", 1, "lower min_gpus of rl from 6 to 1"),
        ("role-max", "actor", 8, "raise max_gpus of role actor of rl from 6 to 8"),
        ("role-min", "actor", 1, "lower min_gpus of role actor of rl from 6 to 1"),
    ],
)
def test_sizes_change_as_the_words_say(problem, code, subject, needed, words):
    """People change the file by the words."""
    each = Relaxation(code, "rl", subject, 6.0, float(needed), 1.0)
    assert each.text == words
    (task,) = relaxed(problem, [each]).tasks
    changed = task if not subject else task.roles[0]
    assert (changed.max_gpus if code.endswith("max") else changed.min_gpus) == needed


def test_pins_and_exclusions_are_lifted(problem):
    """Only the GPUs that are named come back."""
    allowed = (GpuId("n0", 2),)
    changes = [
        Relaxation("pin", "rl", "actor", 1.0, 0.0, 1.0),
        Relaxation("exclusion", "rl", "actor", 2.0, 1.0, 0.5, allowed=allowed),
    ]
    (task,) = relaxed(problem, changes).tasks
    assert task.roles[0].pinned_gpus == frozenset()
    assert task.roles[0].excluded_gpus == {GpuId("n0", 1)}
    assert "n0:2" in changes[1].text


def test_gpus_are_added_beside_those_there_are(problem):
    """Nobody's GPU may change its name."""
    (name,) = problem.cluster.gpu_classes
    wider = relaxed(problem, [Relaxation("gpus", "", name, None, 3.0, 1.0, 8)]).cluster
    assert len(wider.gpus) == 6 + 24
    assert set(problem.cluster.gpus) < set(wider.gpus)
    assert [len(node.gpus) for node in wider.nodes[2:]] == [4] * 6  # whole nodes of the size there is
    assert all(node.cpu_cores == 8.0 for node in wider.nodes[2:])


def test_nodes_get_more_cores_memory_and_gpus(problem):
    """What is added goes to every node; a node that is not full stays as it is."""
    (name,) = problem.cluster.gpu_classes
    more = [
        Relaxation("cpu-cores", "", "", 8.0, 10.0, 0.25),
        Relaxation("host-memory", "", "", 1000.0, 1500.0, 0.5),
        Relaxation("memory", "", name, 1.0, 1e6, 1.0),
    ]
    wider = relaxed(problem, more).cluster
    assert {(node.cpu_cores, node.host_memory_mib) for node in wider} == {(10.0, 1500.0)}
    assert wider.memory_mib(name) == 1e6
    grown = relaxed(problem, [Relaxation("node-size", "", name, 4.0, 8.0, 1.0)]).cluster
    assert [len(node.gpus) for node in grown] == [8, 2]
    assert grown.nodes[0].cpu_cores == 16.0
