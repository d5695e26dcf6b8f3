"""The configurations of a solve, generated once for tasks that are alike."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations.capacity import ClassCapacity, capacities
from libra_plan.planner.configurations.generate import ConfigurationTable, configurations_of
from libra_plan.planner.problem import Role, Task

__all__ = ["KnownConfigurations"]


class KnownConfigurations:
    """Configurations by what they depend on: all of a task but its name, weight and policy settings."""

    def __init__(self) -> None:
        self._tables: dict[Hashable, ConfigurationTable] = {}
        self._rooms: dict[int, tuple[Cluster, Mapping[str, ClassCapacity]]] = {}
        self._roles: dict[int, tuple[tuple[Role, ...], int]] = {}
        self._numbers: dict[tuple[Role, ...], int] = {}

    def rooms(self, cluster: Cluster) -> Mapping[str, ClassCapacity]:
        """Describe every GPU class of a cluster, once."""
        if id(cluster) not in self._rooms:
            self._rooms[id(cluster)] = (
                cluster,
                capacities(cluster),
            )  # a reference, so that its id is not reused
        return self._rooms[id(cluster)][1]

    def of(self, task: Task, cluster: Cluster, *, hosts_bind: bool) -> ConfigurationTable:
        """Return the configurations of a task."""
        rooms = self.rooms(cluster)
        key = (
            self._number(task.roles),
            task.coupling,
            task.arrangements,
            task.sync_s,
            task.min_gpus,
            task.max_gpus,
            task.roles_fill_pools,
            id(cluster),
            hosts_bind,
        )
        if key not in self._tables:
            self._tables[key] = configurations_of(task, cluster, hosts_bind=hosts_bind, rooms=rooms)
        return replace(self._tables[key], task=task)

    def _number(self, roles: tuple[Role, ...]) -> int:
        """Return the number of equal roles; those of copied tasks are compared only once."""
        if id(roles) not in self._roles:
            self._roles[id(roles)] = roles, self._numbers.setdefault(roles, len(self._numbers))
        return self._roles[id(roles)][1]
