"""The machine that the planner runs on, as a cluster of one node."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

import psutil

from libra_plan.errors import ClusterError
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.telemetry.nvml import Card

__all__ = ["local_cluster"]


def local_cluster(cards: Sequence[Card], class_of: Mapping[str, str]) -> Cluster:
    """Build the cluster of this machine's GPUs; `class_of` maps NVML names to GPU classes.

    Cards in MIG mode are left out. A card whose memory NVML does not report, or that no profile was
    measured on, is refused rather than guessed.
    """
    whole = [card for card in cards if not card.mig]
    if not whole:
        raise ClusterError(
            "no whole GPU on this machine",
            got=f"{len(cards)} cards, {sum(bool(card.mig) for card in cards)} of them in MIG mode",
            way_out="name the cluster with gpus (--gpus N) or cluster (--cluster FILE)",
        )
    name = platform.node() or "local"
    cores = psutil.cpu_count(logical=True)
    node = Node(
        name,
        tuple(_gpu(name, card, class_of) for card in whole),
        cpu_cores=None if cores is None else float(cores),
        host_memory_mib=psutil.virtual_memory().total / 2.0**20,
    )
    return Cluster("local", (node,))


def _gpu(node: str, card: Card, class_of: Mapping[str, str]) -> Gpu:
    if card.name not in class_of:
        raise ClusterError(
            "no profile was measured on this GPU",
            got=card.name,
            allowed=", ".join(sorted(class_of)) or "no profile",
            way_out="measure one with `libra-plan profile measure`",
        )
    if card.memory_mib is None:
        raise ClusterError(
            f"NVML does not report the memory of GPU {card.index}",
            got=card.name,
            way_out="state it in a cluster file (gpu_memory_mib) and give it as cluster (--cluster)",
        )
    return Gpu(GpuId(node, card.index), class_of[card.name], card.memory_mib, card.uuid)
