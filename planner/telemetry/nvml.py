"""The only reader of NVML. What it cannot read is None, never 0."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from libra_plan.errors import InputError
from libra_plan.profiles.units import MIB

__all__ = ["Card", "connect", "load_library", "read_cards"]


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU as NVML sees it, by its PCI-order index. Memory in MiB.

    `used_mib` leaves out what the driver reserves. `processes` lists the pids that hold the GPU;
    an empty list inside a container does not mean free, so `used_mib` counts too. `mig` tells
    whether the card is cut into instances; such a card is not a whole GPU.
    """

    index: int
    uuid: str
    name: str
    memory_mib: float | None
    used_mib: float | None
    processes: tuple[int, ...] | None
    mig: bool | None


def load_library() -> Any:
    """Give the module pynvml; raise an InputError when another package has taken its name."""
    import pynvml

    if not hasattr(pynvml, "nvmlDeviceGetMemoryInfo_v2") and not hasattr(pynvml, "nvmlMemory_v2"):
        raise InputError(
            "the module pynvml is not the one of nvidia-ml-py",
            got=getattr(pynvml, "__file__", "?"),
            way_out="pip uninstall pynvml nvidia-ml-py3; pip install --force-reinstall nvidia-ml-py",
        )
    return pynvml


def connect(nvml: Any) -> None:
    """Begin to use NVML; raise an InputError when it cannot be used here."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise InputError(
            "the GPUs of this machine cannot be read",
            got=f"NVML: {error}",
            allowed="a machine with an NVIDIA driver that answers",
            way_out="name the cluster with --gpus N or --cluster FILE",
        ) from None


def read_cards() -> tuple[Card, ...]:
    """Read every GPU of this machine; raise an InputError when NVML cannot be used here."""
    nvml = load_library()
    connect(nvml)
    try:
        return tuple(_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, index: int) -> Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except nvml.NVMLError:
            return None

    memory = ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    running = ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    mig = ask(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    name = nvml.nvmlDeviceGetName(handle)
    return Card(
        index,
        nvml.nvmlDeviceGetUUID(handle),
        name if isinstance(name, str) else name.decode(),
        None if memory is None else memory.total / MIB,
        None if memory is None else memory.used / MIB,
        None if running is None else tuple(sorted(process.pid for process in running)),
        None if mig is None else bool(mig),
    )
