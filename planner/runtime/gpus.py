"""Ask NVML whether the GPUs of a manifest are free; what it cannot tell is unknown."""

from __future__ import annotations

from libra_plan.errors import InputError
from libra_plan.planner.launchers.manifest import GpuEntry
from libra_plan.planner.runtime.host import GpuReport, GpuUse
from libra_plan.planner.telemetry.nvml import Card, read_cards

__all__ = ["gpus_free"]

_IDLE_MIB = 1024.0  # an idle H200 shows 527 MiB; a process with a CUDA context takes several hundred more


def gpus_free(node: str, gpus: tuple[GpuEntry, ...]) -> tuple[GpuReport, ...]:
    """Report each GPU as free, busy or unknown, joined by UUID where the manifest has one."""
    try:
        cards = read_cards()
    except InputError as error:
        why = f"{error.what}: {error.got}"  # its way out is for who plans, not for who launches
        return tuple(GpuReport(f"{node}:{gpu.index}", GpuUse.UNKNOWN, why) for gpu in gpus)
    by_uuid = {card.uuid: card for card in cards}
    by_index = {card.index: card for card in cards}
    return tuple(
        _report(node, gpu, by_index.get(gpu.card) if gpu.uuid is None else by_uuid.get(gpu.uuid))
        for gpu in gpus
    )


def _report(node: str, gpu: GpuEntry, card: Card | None) -> GpuReport:
    name = f"{node}:{gpu.index}"
    if card is None:
        return GpuReport(name, GpuUse.BUSY, f"no such card here: {gpu.uuid or gpu.index}")
    if card.index != gpu.card:
        return GpuReport(name, GpuUse.BUSY, f"card {gpu.uuid} now has index {card.index}: solve again")
    if card.mig:
        return GpuReport(name, GpuUse.BUSY, "the card is in MIG mode")
    if card.processes and gpu.card != gpu.index:
        pids = ", ".join(map(str, card.processes))
        return GpuReport(name, GpuUse.UNKNOWN, f"pids {pids} have its other seat, or this one")
    if card.processes:
        return GpuReport(name, GpuUse.BUSY, f"pids {', '.join(map(str, card.processes))}")
    if card.used_mib is None:
        return GpuReport(name, GpuUse.UNKNOWN, "NVML does not tell its memory")
    if card.used_mib > _IDLE_MIB:
        return GpuReport(name, GpuUse.BUSY, f"{card.used_mib:,.0f} MiB in use by processes not seen here")
    return GpuReport(name, GpuUse.FREE)
