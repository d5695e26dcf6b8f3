"""Table-priced tasks, and that they carry RLinf's published cost model exactly."""

from itertools import product

import pytest
from rlinf_tasks import rlinf_instances, rlinf_task

from libra_plan.planner.configurations.phases import coupled_time_s
from libra_plan.planner.problem import CouplingKind
from libra_plan.planner.tables import table_cluster, table_task


def seconds(task):
    return [{option.gpus: option.time_s.value for option in role.options} for role in task.roles]


@pytest.mark.parametrize("name", sorted(rlinf_instances()))
def test_pure_optimum_of_rlinf_instances(name):
    """Enumerating the table task gives the published optimum of shared or separate pools."""
    instance = rlinf_instances()[name]
    task = rlinf_task(instance)
    tables = seconds(task)
    gpus = instance["total_gpus"]
    shared = sum(table[gpus] for table in tables)
    separate = [
        coupled_time_s([(time, None) for time in times], task.coupling)
        for counts in product(*tables)
        if sum(counts) <= gpus
        for times in [[table[count] for table, count in zip(tables, counts, strict=True)]]
    ]
    best = min([shared, *separate])
    assert best == pytest.approx(instance["exact_total_s"]["pure_idle"], rel=1e-6)
    if instance["peer_total_s"] is not None:
        assert best <= instance["peer_total_s"] * (1 + 1e-6)


def test_options_have_exact_times_and_cost_nothing_else():
    """A table says seconds only, so memory, CPU and switches must not shape the plan."""
    task = table_task("t", 2.0, {"rollout": {1: 10.0, 2: 6.0}})
    (role,) = task.gpu_roles
    assert [option.gpus for option in role.options] == [1, 2]
    assert role.options[1].time_s.low == role.options[1].time_s.high == 6.0
    assert {option.peak_mib for option in role.options} == {0.0}
    assert task.coupling.kind is CouplingKind.SYNC


def test_replica_size_makes_replicas_of_it():
    """A role in replicas of 2 GPUs has half as many replicas, and no option for odd counts."""
    task = table_task("t", 1.0, {"actor": {2: 8.0, 3: 7.0, 4: 5.0}}, replica_gpus={"actor": 2})
    assert [(o.replicas, o.gpus) for o in task.roles[0].options] == [(1, 2), (2, 4)]


def test_table_cluster_has_one_node_unless_told():
    """Published instances know no nodes, so none may restrict the packing."""
    assert [len(node.gpus) for node in table_cluster(10)] == [10]
    assert [len(node.gpus) for node in table_cluster(10, 4)] == [4, 4, 2]
