"""What a GPU class can do at most: memory, and the floors that no measurement can go below."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GPUS", "GpuClass", "bytes_per_weight", "implausible_memory"]


@dataclass(frozen=True, slots=True)
class GpuClass:
    """Data-sheet limits: memory (MiB as the driver shows it), HBM bytes/s, dense bf16 operations/s."""

    memory_mib: float
    bandwidth_bytes_per_s: float
    bf16_per_s: float
    source: str


# Nominal bandwidth and operations: NVIDIA's data sheets (decimal units). Memory: what nvidia-smi
# shows for an 80 GB H100 (81,559 MiB) and an 80 GB A100 (81,920 MiB); H200 as CUDA reports it.
GPUS: dict[str, GpuClass] = {
    "a100_sxm": GpuClass(81_920.0, 2.039e12, 312e12, "NVIDIA A100 80 GB SXM data sheet"),
    "h100_sxm": GpuClass(81_559.0, 3.35e12, 989.4e12, "NVIDIA H100 SXM data sheet"),
    "h200_sxm": GpuClass(143_155.9, 4.8e12, 989.4e12, "NVIDIA H200 SXM data sheet"),
}

LEAST_SHARE, MOST_SHARE = 0.5, 1.1


def implausible_memory(gpu_class: str, memory_mib: float) -> dict[str, str] | None:
    """Say what is wrong with a stated memory, in the parts of a message; None when it can be.

    A known class has its memory up to what drivers keep for themselves; a card of half the size
    is another class. What is not known is not judged.
    """
    known = GPUS.get(gpu_class)
    if known is None:
        return None
    least, most = LEAST_SHARE * known.memory_mib, MOST_SHARE * known.memory_mib
    if least <= memory_mib <= most:
        return None
    return {
        "what": f"the memory cannot be that of a GPU of class {gpu_class}: MiB, not GB?",
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
    "fp4": 0.5,
    "nvfp4": 0.5,
    "mxfp4": 0.5,
    "int4": 0.5,
}


def bytes_per_weight(precision: str) -> float:
    """Give the bytes of one weight as it is used in a forward pass; 2 for bf16, fp16 and unknown words.

    `fp32-master/bf16` computes in the part after the stroke.
    """
    used = precision.rsplit("/", maxsplit=1)[-1]
    return _WIDTHS.get(used.replace("-", "_").split("_")[0], 2.0)
