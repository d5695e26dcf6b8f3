"""Write Kueue's objects for a cluster: topology, flavor, cluster queue and local queue."""

from __future__ import annotations

from collections.abc import Iterator

from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.launchers.shell import to_yaml

__all__ = ["queue_objects"]

_API = "kueue.x-k8s.io/v1beta2"


def queue_objects(manifest: Manifest, queue: str, namespace: str, resource: str) -> str:
    """Write the objects once per cluster; quotas are the inventory, so planned tasks fit."""
    notes = (
        "Apply once per cluster; skip what your administrators have made already.",
        "Quotas are those of the inventory: the planner divides, Kueue only starts and stops.",
    )
    return to_yaml(notes, *_objects(manifest, queue, namespace, resource))


def _objects(manifest: Manifest, queue: str, namespace: str, resource: str) -> Iterator[dict[str, object]]:
    nodes = manifest.spec.nodes
    quotas: list[tuple[str, object]] = [(resource, sum(len(node.gpus) for node in nodes))]
    cores = [node.cpu_cores for node in nodes]
    memory = [node.host_memory_mib for node in nodes]
    if None not in cores:
        quotas.append(("cpu", f"{int(sum(core or 0.0 for core in cores))}"))
    if None not in memory:
        quotas.append(("memory", f"{int(sum(mib or 0.0 for mib in memory))}Mi"))
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    yield _object("Topology", queue, {"levels": levels})
    labels = {"kubernetes.io/os": "linux"}
    yield _object("ResourceFlavor", queue, {"nodeLabels": labels, "topologyName": queue})
    flavor = {
        "name": queue,
        "resources": [{"name": name, "nominalQuota": quota} for name, quota in quotas],
    }
    group = {"coveredResources": [name for name, _ in quotas], "flavors": [flavor]}
    yield _object("ClusterQueue", queue, {"namespaceSelector": {}, "resourceGroups": [group]})
    yield _object("LocalQueue", queue, {"clusterQueue": queue}, namespace)


def _object(kind: str, name: str, spec: dict[str, object], namespace: str | None = None) -> dict[str, object]:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": spec}
