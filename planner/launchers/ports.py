"""Hand out ports: one per role and node, never one that a parent's processes may still hold."""

from __future__ import annotations

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry

__all__ = ["PortBook", "ports_in_use"]


def ports_in_use(manifest: Manifest | None) -> dict[str, set[int]]:
    """Collect the ports of a manifest by node."""
    used: dict[str, set[int]] = {}
    if manifest is None:
        return used
    for task in manifest.spec.tasks:
        for role in task.roles:
            for member in role.members:
                used.setdefault(member.node, set()).add(member.port)
    return used


class PortBook:
    """Give each caller the lowest port of a node that nobody else has."""

    def __init__(self, nodes: tuple[NodeEntry, ...], parent: Manifest | None) -> None:
        self._ranges = {node.id: node.port_range for node in nodes}
        self._used = ports_in_use(parent)
        self._next = {node.id: node.port_range[0] for node in nodes}

    def take(self, node: str, purpose: str) -> int:
        """Take a port on a node for a purpose that the error names when the range is exhausted."""
        first, last = self._ranges[node]
        used = self._used.setdefault(node, set())
        port = self._next[node]
        while port in used:
            port += 1
        if port > last:
            raise ManifestError(
                f"no port is left on node {node} for {purpose}",
                got=f"{len(used)} ports taken, those of the parent manifest counted",
                allowed=f"{first}-{last}",
                way_out=f"widen port_first-port_last of node {node} in cluster.yaml",
            )
        used.add(port)
        self._next[node] = port + 1
        return port
