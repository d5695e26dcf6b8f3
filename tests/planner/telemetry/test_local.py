"""The machine as a cluster: whole GPUs whose memory and class are known, or a refusal."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from libra_plan.errors import ClusterError
from libra_plan.planner.telemetry.local import local_cluster
from libra_plan.planner.telemetry.nvml import Card

CARD = Card(0, "GPU-0", "NVIDIA H200", 143771.0, 0.0, (), False)
CLASSES = {"NVIDIA H200": "h200"}


def test_every_whole_gpu_is_in_the_one_node():
    """Class, memory and UUID are what placements and profiles go by."""
    other = replace(CARD, index=3, uuid="GPU-3")
    (node,) = local_cluster([CARD, other], CLASSES)
    assert [(gpu.id.index, gpu.gpu_class, gpu.memory_mib, gpu.uuid) for gpu in node.gpus] == [
        (0, "h200", 143771.0, "GPU-0"),
        (3, "h200", 143771.0, "GPU-3"),
    ]
    assert node.cpu_cores == psutil.cpu_count(logical=True)
    assert node.host_memory_mib == pytest.approx(psutil.virtual_memory().total / 2**20)


def test_gpus_in_mig_mode_are_left_out_and_unknown_mode_counts_as_whole():
    """An instance is no GPU; a driver that does not know MIG has none."""
    cards = [replace(CARD, mig=True), replace(CARD, index=1, mig=None)]
    (node,) = local_cluster(cards, CLASSES)
    assert [gpu.id.index for gpu in node.gpus] == [1]
    with pytest.raises(ClusterError, match="no whole GPU") as caught:
        local_cluster(cards[:1], CLASSES)
    assert caught.value.got == "1 cards, 1 of them in MIG mode"


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (replace(CARD, name="NVIDIA X1"), "no profile was measured on this GPU"),
        (replace(CARD, memory_mib=None), "NVML does not report the memory of GPU 0"),
    ],
)
def test_what_is_not_known_is_refused_rather_than_guessed(card, said):
    """A plan for memory that is not there would fail at the start of the run."""
    with pytest.raises(ClusterError, match=said):
        local_cluster([card], CLASSES)
