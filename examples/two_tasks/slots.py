"""Turn what `measure.py` wrote into profile folders that the planner reads."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import psutil
import torch
from model import SIZES, Decoder

from libra_plan.profiles.profile_folder import sha256_of, write_folder
from libra_plan.profiles.schema import Hardware, Method, ModelShape, Point, ProfileFile, Provenance, Software

__all__ = ["write_profiles"]


def write_profiles(measured: Path, folder: Path, slots: int) -> None:
    """Write `slot-tiny-train` and `slot-tiny-decode`; a slot has its share of the machine's memory."""
    content = measured.read_bytes()
    found = json.loads(content)
    size = SIZES["tiny"]
    for phase in ("train", "decode"):
        profile = ProfileFile(
            schema_version=1,
            id=f"slot-tiny-{phase}",
            phase=phase,
            model=ModelShape(
                id="tiny",
                params=sum(each.numel() for each in Decoder(size).parameters()),
                layers=size.layers,
                hidden=size.hidden,
                heads=size.heads,
                kv_heads=size.kv_heads,
                head_dim=size.head_dim,
                ffn=size.ffn,
                vocab=size.vocab,
            ),
            hardware=Hardware(
                gpu_class="slot",
                memory_mib=psutil.virtual_memory().total / 2**20 / slots,
                intra_node_gib_per_s=found["gib_per_s"],
            ),
            software=Software(
                framework="torch", version=str(torch.__version__), precision="fp32", recompute="full"
            ),
            method=Method(
                clock="mean of repeats on the slowest rank, all slots at work",
                exclusive=False,
                tokens_counted="output" if phase == "decode" else "input",
                throughput_basis="total",
            ),
            provenance=Provenance(
                kind="measured",
                points_sha256=sha256_of(b""),  # filled in when the points are text
                source=measured.name,
                source_sha256=sha256_of(content),
            ),
        )
        # A slot's memory is its process's: nothing lies outside an allocator.
        points = [{**each, "device_used_mib": each["peak_reserved_mib"]} for each in found[phase]]
        write_folder(folder, profile, [msgspec.convert(each, Point) for each in points])
