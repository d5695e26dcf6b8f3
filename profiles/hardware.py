"""Constants of GPU classes and of the links between GPUs, read from `hardware/<class>.yaml`."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import Literal

import msgspec

from libra_plan.profiles.document import Document, decode, read_document
from libra_plan.profiles.schema_base import File, Mib, NonNegative, Positive

__all__ = [
    "EngineMemory",
    "GpuClass",
    "GpuLimits",
    "LinkConstants",
    "NodeDefaults",
    "RunMemory",
    "bytes_per_weight",
    "class_of",
    "gpu_class",
    "gpu_limits",
    "implausible_memory",
    "known_classes",
]

_FOLDER = Path(__file__).parent / "hardware"
_MEASURED_ON = "h200_sxm"
"""Sections that the file of another class lacks are taken from this class."""
_SECTIONS = ("node", "links", "engine", "runs")
LEAST_SHARE, MOST_SHARE = 0.5, 1.1


class GpuLimits(File, frozen=True, kw_only=True):
    """Limits of one GPU that no measurement can exceed.

    Memory in MiB as the driver shows it, HBM bytes/s and dense bf16 operations/s of the data sheet.
    """

    memory_mib: Positive
    bandwidth_bytes_per_s: Positive
    bf16_per_s: Positive
    source: str


class NodeDefaults(File, frozen=True, kw_only=True):
    """What a node is taken to have when only a number of GPUs is given."""

    cpu_cores_per_gpu: Positive
    host_memory_mib_per_gpu: Mib
    inter_node_gib_per_s: Positive
    source: str


class LinkConstants(File, frozen=True, kw_only=True):
    """How collectives use the links between GPUs.

    `efficiency`: bandwidth of a collective over that of a copy. `call_s`: seconds of one call.
    `hop_s`, `hop_across_nodes_s`: seconds of one hop of a ring. `hook_s_per_layer`: host seconds that
    data-parallel hooks add to each layer of a step that is bound by launches.
    """

    efficiency: Positive
    call_s: NonNegative
    hop_s: NonNegative
    hop_across_nodes_s: NonNegative
    hook_s_per_layer: NonNegative
    source: str


class EngineMemory(File, frozen=True, kw_only=True):
    """Memory that a serving engine takes beside weights and KV cache, MiB per GPU.

    `communication_mib`: NCCL's buffers at tensor parallelism 1, 2, and 4 or more.
    """

    reserve_mib: Mib
    communication_mib: tuple[Mib, Mib, Mib]
    source: str


class RunMemory(File, frozen=True, kw_only=True):
    """Memory by which a process, or another run of the same step, exceeds its measured peak.

    `outside_allocator_mib`: what a process holds on a GPU outside its allocator, where a profile did
    not measure it. `reserve_mib` and `reserve_share`: room for another run, whatever the shape and as
    a share of what moves with the shape.
    """

    outside_allocator_mib: Mib
    reserve_mib: Mib
    reserve_share: NonNegative
    source: str


class GpuClass(File, frozen=True, kw_only=True):
    """Constants of one GPU class. `limits` is None where they are unknown.

    `driver_names`: names that the driver gives the card.
    """

    schema_version: Literal[1]
    gpu_class: str
    driver_names: tuple[str, ...] = ()
    limits: GpuLimits | None = None
    node: NodeDefaults
    links: LinkConstants
    engine: EngineMemory
    runs: RunMemory


def known_classes() -> tuple[str, ...]:
    """Return the names of the classes that have a file."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@functools.cache
def gpu_class(name: str) -> GpuClass:
    """Return the constants of a GPU class.

    A section that its file lacks, and every section of a class without a file, is that of the class
    it was measured on (`h200_sxm`). Limits are never taken over.
    """
    base = _data(_read(_MEASURED_ON))
    sections = {key: base[key] for key in _SECTIONS}
    if name not in known_classes():
        return msgspec.convert({"schema_version": 1, "gpu_class": name, **sections}, GpuClass)
    document = _read(name)
    return decode(dataclasses.replace(document, data={**sections, **_data(document)}), GpuClass)


def gpu_limits(name: str) -> GpuLimits | None:
    """Return the limits of a GPU class; None where they are unknown."""
    return gpu_class(name).limits


def class_of(driver_name: str) -> str:
    """Return the `gpu_class` of a device name: `NVIDIA H200` is h200_sxm, an unknown one is spelled out."""
    short = _short(driver_name)
    for name in known_classes():
        if short in map(_short, gpu_class(name).driver_names):
            return name
    return re.sub(r"[^a-z0-9]+", "_", short).strip("_")[:63] or "gpu"


def implausible_memory(name: str, memory_mib: float) -> dict[str, str] | None:
    """Return the parts of a message about a stated memory that cannot be true, or None.

    A known class has its memory up to what drivers keep for themselves; a card of half the size
    is another class. Unknown classes are not judged.
    """
    known = gpu_limits(name)
    if known is None:
        return None
    least, most = LEAST_SHARE * known.memory_mib, MOST_SHARE * known.memory_mib
    if least <= memory_mib <= most:
        return None
    return {
        "what": f"the memory cannot be that of a GPU of class {name}: MiB, not GB?",
        "got": f"{memory_mib:g} MiB",
        "allowed": f"{least:.0f} to {most:.0f} MiB; this class has {known.memory_mib:.0f}",
        "way_out": "write what `nvidia-smi --query-gpu=memory.total --format=csv` shows; "
        "another card needs a gpu_class of its own",
    }


_WIDTHS = {
    "fp32": 4.0,
    "fp8": 1.0,
    "int8": 1.0,
    "w8a8": 1.0,
    **dict.fromkeys(("fp4", "nvfp4", "mxfp4", "int4"), 0.5),
}


def bytes_per_weight(precision: str) -> float:
    """Return the bytes of one weight in a forward pass; 2 for bf16, fp16 and unknown words.

    `fp32-master/bf16` computes in the part after the stroke.
    """
    used = precision.rsplit("/", maxsplit=1)[-1]
    return _WIDTHS.get(used.replace("-", "_").split("_")[0], 2.0)


def _read(name: str) -> Document:
    return read_document(_FOLDER / f"{name}.yaml")


def _data(document: Document) -> dict[str, object]:
    return msgspec.convert(document.data, dict[str, object])


def _short(driver_name: str) -> str:
    return re.sub(r"^nvidia\s+", "", driver_name.strip().lower())
