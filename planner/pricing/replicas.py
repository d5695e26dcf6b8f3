"""Which replica counts are worth a price."""

from __future__ import annotations

from collections import Counter

from libra_plan.models.topology import Cluster

__all__ = ["ALL_COUNTS_UP_TO_GPUS", "largest_node", "mixed_budgets", "replica_counts", "widest_replica"]

ALL_COUNTS_UP_TO_GPUS = 64


def largest_node(cluster: Cluster, gpu_class: str) -> int:
    """Count the GPUs of one class on the node that has most of them."""
    return max(sum(gpu.gpu_class == gpu_class for gpu in node.gpus) for node in cluster.nodes)


def widest_replica(cluster: Cluster, gpu_class: str) -> int:
    """Count the GPUs of the largest replica there is room for: whole nodes of one NVLink domain."""
    full = largest_node(cluster, gpu_class)
    whole = Counter(
        cluster.span_of[node.id]
        for node in cluster.nodes
        if sum(gpu.gpu_class == gpu_class for gpu in node.gpus) == full
    )
    return full * max(whole.values())


def mixed_budgets(least_gpus: int, most_gpus: int, node_gpus: int) -> tuple[int, ...]:
    """List the numbers of GPUs to mix layouts on: all of a node, then halves of nodes, then whole ones."""
    half = max(1, node_gpus // 2)
    return tuple(
        gpus
        for gpus in range(max(1, least_gpus), most_gpus + 1)
        if gpus <= node_gpus
        or gpus % (half if gpus <= ALL_COUNTS_UP_TO_GPUS else node_gpus) == 0
        or gpus == least_gpus
    )


def replica_counts(
    replica_gpus: int, least_gpus: int, most_gpus: int, work_items: int, node_gpus: int, exact_gpus: int = 0
) -> tuple[int, ...]:
    """List the replica counts to price, ascending.

    Up to 64 GPUs every count, beyond it those that fill whole nodes. A count that leaves the
    largest share ⌈items/replicas⌉ as it was is left out, unless it fills whole nodes: it costs more
    GPUs for the same number of items on the busiest replica. With `exact_gpus` (pinned GPUs) only
    that count remains.
    """
    if exact_gpus:
        whole = exact_gpus % replica_gpus == 0 and exact_gpus // replica_gpus <= work_items
        return (exact_gpus // replica_gpus,) if whole else ()
    most = min(most_gpus // replica_gpus, work_items)
    least = max(1, -(-least_gpus // replica_gpus))
    found: list[int] = []
    share = 0
    for count in range(least, most + 1):
        gpus = count * replica_gpus
        whole_nodes = gpus % node_gpus == 0
        if gpus > ALL_COUNTS_UP_TO_GPUS and not whole_nodes and count > least:
            continue
        previous, share = share, -(-work_items // count)
        if share != previous or whole_nodes:
            found.append(count)
    return tuple(found)
