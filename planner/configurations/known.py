"""The configurations of a solve: alike tasks are looked at once, and what a folder keeps not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations.capacity import ClassCapacity, capacities
from libra_plan.planner.configurations.generate import ConfigurationTable, configurations_of
from libra_plan.planner.configurations.keeping import ConfigurationFolder, configuration_key
from libra_plan.planner.problem import Task

__all__ = ["KnownConfigurations"]


class KnownConfigurations:
    """Configurations by what they depend on, for one solve; in `folder` they are kept for the next."""

    def __init__(self, folder: ConfigurationFolder | None = None) -> None:
        self.folder = folder
        self._tables: dict[tuple[Task, int, bool], ConfigurationTable] = {}
        self._rooms: dict[int, tuple[Cluster, Mapping[str, ClassCapacity]]] = {}

    def rooms(self, cluster: Cluster) -> Mapping[str, ClassCapacity]:
        """Describe every GPU class of a cluster, once."""
        if id(cluster) not in self._rooms:
            self._rooms[id(cluster)] = cluster, capacities(cluster)  # which keeps the id taken
        return self._rooms[id(cluster)][1]

    def of(self, task: Task, cluster: Cluster, *, hosts_bind: bool) -> ConfigurationTable:
        """Give the configurations of a task; its name, weight and what policies read make no difference."""
        alike = Task(
            "",
            1.0,
            task.roles,
            task.coupling,
            task.arrangements,
            sync_s=task.sync_s,
            min_gpus=task.min_gpus,
            max_gpus=task.max_gpus,
            roles_fill_pools=task.roles_fill_pools,
        )
        rooms = self.rooms(cluster)
        key = (alike, id(cluster), hosts_bind)
        if key not in self._tables:
            self._tables[key] = self._kept(alike, cluster, rooms, hosts_bind)
        return replace(self._tables[key], task=task)

    def _kept(
        self, task: Task, cluster: Cluster, rooms: Mapping[str, ClassCapacity], hosts_bind: bool
    ) -> ConfigurationTable:
        name = None if self.folder is None else configuration_key(task, rooms, hosts_bind=hosts_bind)
        table = None if self.folder is None or name is None else self.folder.find(name, task, rooms)
        if table is None:
            table = configurations_of(task, cluster, hosts_bind=hosts_bind, rooms=rooms)
            if self.folder is not None and name is not None:
                self.folder.keep(name, table)
        return table
