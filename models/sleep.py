"""What a role costs when it makes room for another one in the same pool."""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.profiles.units import MIB_PER_GIB

__all__ = ["SleepCost", "sleep_cost"]


@dataclass(frozen=True, slots=True)
class SleepCost:
    """Seconds to move a role's state to pinned host memory and back, and what is left where.

    Per GPU: `asleep_mib` stays on the device (CUDA context, NCCL buffers: what the device shows in
    use beyond the allocator's reserve, 770 MiB for decode and 870 MiB for score and train on H200,
    the driver's idle 527 MiB included), `host_mib` is taken on the host.
    """

    sleep_s: float
    wake_s: float
    asleep_mib: float
    host_mib: float


def sleep_cost(
    static_mib: float, asleep_mib: float, to_host_gib_per_s: float, to_device_gib_per_s: float
) -> SleepCost:
    """Price a move of `static_mib` per GPU over pinned host memory (51 GiB/s each way on H200).

    All GPUs of a node are taken to move at that rate at once. Pageable memory is some forty times
    slower (1.2–1.4 GiB/s), so a role without pinned memory must not be priced by this.
    """
    gib = static_mib / MIB_PER_GIB
    return SleepCost(gib / to_host_gib_per_s, gib / to_device_gib_per_s, asleep_mib, static_mib)
