"""Problems priced by plain tables of seconds, for published instances and for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Origin, exactly
from libra_plan.models.topology import Cluster
from libra_plan.planner.problem import Arrangement, Coupling, CouplingKind, Role, StageOption, Task

__all__ = ["TABLE_CLASS", "pipelined", "table_cluster", "table_role", "table_task"]

TABLE_CLASS = "table"


def table_role(
    role: str,
    seconds: Mapping[int, float],
    *,
    gpu_class: str = TABLE_CLASS,
    replica_gpus: int = 1,
    peak_mib: float = 0.0,
) -> Role:
    """Make a role whose seconds per step are given per GPU count; switching it costs nothing."""
    options = tuple(
        StageOption(
            gpu_class,
            Layout(tp=replica_gpus),
            gpus // replica_gpus,
            exactly(time, "s", Origin.MEASURED),
            peak_mib,
            0.0,
            0.0,
            0.0,
            0.0,
            0.0,
        )
        for gpus, time in sorted(seconds.items())
        if gpus % replica_gpus == 0
    )
    return Role(role, "rollout", options)


def table_task(
    task: str,
    weight: float,
    roles: Mapping[str, Mapping[int, float]],
    coupling: Coupling | None = None,
    *,
    arrangements: Iterable[Arrangement] = Arrangement,
    replica_gpus: Mapping[str, int] | None = None,
    gpu_class: str = TABLE_CLASS,
    restart_s: float = 0.0,
    min_gpus: int = 0,
    max_gpus: int | None = None,
    roles_fill_pools: bool = False,
) -> Task:
    """Make a task from {role: {GPUs: seconds per step}}; memory, CPU and switches cost nothing.

    `replica_gpus` gives the GPUs of one replica per role (default 1); counts it does not divide are
    left out. Without `coupling` it is sync.
    """
    sizes = replica_gpus or {}
    made = tuple(
        table_role(name, seconds, gpu_class=gpu_class, replica_gpus=sizes.get(name, 1))
        for name, seconds in roles.items()
    )
    return Task(
        task,
        weight,
        made,
        coupling or Coupling(CouplingKind.SYNC),
        frozenset(arrangements),
        restart_s=restart_s,
        min_gpus=min_gpus,
        max_gpus=max_gpus,
        roles_fill_pools=roles_fill_pools,
    )


def pipelined(groups: int) -> Coupling:
    """Make the coupling of a step cut into `groups` micro-groups.

    With c_r seconds per group this is RLinf's disaggregated cost Σc_r + (groups − 1)·max c_r, for
    roles whose tables hold groups·c_r seconds per step.
    """
    return Coupling(CouplingKind.PIPELINED, groups=groups)


def table_cluster(gpus: int, gpus_per_node: int | None = None) -> Cluster:
    """Make a cluster for table-priced tasks; one node unless `gpus_per_node` says otherwise."""
    return uniform_cluster(gpus, TABLE_CLASS, 1.0, gpus_per_node or gpus)
