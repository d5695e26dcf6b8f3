from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

import pytest

from libra_plan.profiles.catalog import load_folder, shipped_folder

ROOT = Path(__file__).parents[2]


def load(name):
    """Load a script of benchmarks/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


shipped_h200 = load("shipped_h200")
PROFILES_SOURCE, SHARING_SOURCE = shipped_h200.PROFILES_SOURCE, shipped_h200.SHARING_SOURCE
SOURCE = os.environ.get("LIBRA_PLAN_H200_SOURCE", "")
SOURCE_SHA256 = {
    PROFILES_SOURCE: "37338287e4f27b9d7a112926fed192ae2fb658d90a2484449ae56faa2bd6930c",
    SHARING_SOURCE: "141a85ef665f386970fc82f85e738d462187ed1e1ca47497ac6ae20af9e249fe",
}
META = '{"torch": "2.11.0", "gpu": "NVIDIA H200", "cuda": "13.0", "driver": "580", "total_mib": 143155.9, '
META += '"idle_used_mib": 526.8, "transformers": "5.17.0"}'
TABLE = (
    "role,model,params,precision,recompute,mode,batch,seq_len,step_s,step_s_min,step_s_max,tokens_per_s,"
    "peak_allocated_mib,peak_reserved_mib,device_used_mib\n"
    "decode,qwen2.5-0.5b,494032768,bf16,,cudagraph,1,512,0.002932,0.002926,0.00294,341.0,1056.9,1102.0,1868.8\n"
    "train,qwen2.5-0.5b,494032768,fp32-master/bf16,full,,1,512,0.2,0.1,0.3,2560,8950.6,9352.0,10200.8\n"
)
EVENTS = """{"kind": "p2p", "gib": 1, "s": 0.5, "gib_per_s": 2.0}
{"kind": "d2h_pinned", "gib": 1, "gib_per_s": 51.0}
{"kind": "h2d_pinned", "gib": 1, "gib_per_s": 53.0}
{"kind": "d2h_pageable", "gib": 1, "gib_per_s": 1.2}
{"kind": "torchrun_start", "world": 1, "rep": 0, "import_cuda_nccl_s": [6.0, 6.5, 7.0], "rc": 0}
{"kind": "torchrun_start", "world": 2, "rep": 0, "import_cuda_nccl_s": [6.0, 6.5, 9.0], "rc": 0}
{"kind": "checkpoint", "model": "m", "gib": 3.0, "save_s": 2.0, "load_s": 1.0}
{"kind": "shared", "a": "x", "b": "y", "rel": [0.5, 0.4], "sum_rel": 0.9}
{"kind": "nccl", "gib": 1, "broadcast_s": 0.5, "all_reduce_s": 0.25}
"""
DDP = '{{"kind": "ddp", "model": "qwen2.5-0.5b", "world": {world}, "per_gpu_batch": 2, "seq_len": 64, '
DDP += '"step_s": 1, "tokens_per_s": {rate}}}\n'
EVENTS += DDP.format(world=1, rate=128) + DDP.format(world=2, rate=256)


def write_source(folder: Path) -> Path:
    folder.mkdir()
    for name, text in (("meta.json", META), (PROFILES_SOURCE, TABLE), (SHARING_SOURCE, EVENTS)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_imports_a_folder_per_model_and_phase(tmp_path: Path) -> None:
    """What is imported passes the catalog's own checks, and a second run changes nothing."""
    source = write_source(tmp_path / "source")
    shipped_h200.import_h200(source, tmp_path / "out")
    shipped_h200.main([str(source), str(tmp_path / "again")])
    assert tree(tmp_path / "out") == tree(tmp_path / "again")
    folder = load_folder(tmp_path / "out", library=())
    assert sorted(folder.profiles) == [
        "h200-qwen2.5-0.5b-decode",
        "h200-qwen2.5-0.5b-train",
        "h200-qwen2.5-0.5b-train-ddp",
    ]
    assert [point.dp for point in folder.profiles["h200-qwen2.5-0.5b-train-ddp"].points] == [1, 2]
    decode = folder.profiles["h200-qwen2.5-0.5b-decode"]
    assert decode.points[0].peak_reserved_mib == 1102.0
    assert decode.file.provenance.source_sha256 == hashlib.sha256(TABLE.encode()).hexdigest()


def test_switching_costs_are_those_of_the_readings() -> None:
    """Median, bounds and rates, worked out by hand from the few lines above."""
    costs = shipped_h200.switching_file(EVENTS.encode())
    assert (costs.start_s.typical, costs.start_s.low, costs.start_s.p90, costs.start_s.n) == (
        8.0,
        7.0,
        9.0,
        2,
    )
    assert (costs.save_gib_per_s.typical, costs.load_gib_per_s.typical) == (1.5, 3.0)
    assert costs.pinned_host_gib_per_s is not None
    assert (costs.pinned_host_gib_per_s.typical, costs.pinned_host_gib_per_s.n) == (52.0, 2)
    assert costs.broadcast_gib_per_s is not None
    assert costs.broadcast_gib_per_s.typical == 2.0
    assert (costs.shared_gpu[0].rate_a, costs.shared_gpu[0].rate_b) == (0.5, 0.4)


def test_shipped_profiles_name_their_sources() -> None:
    """Every shipped number leads back to a source file by its digest."""
    folder = load_folder(shipped_folder(), library=())
    for name, profile in folder.profiles.items():
        if not name.startswith("h200-"):
            continue  # other sets come from elsewhere, and are checked with what made them
        provenance = profile.file.provenance
        assert provenance.source is not None
        assert provenance.kind == "measured"
        assert provenance.source_sha256 == SOURCE_SHA256[provenance.source]
    assert folder.switching["h200_sxm"].source_sha256 == SOURCE_SHA256[SHARING_SOURCE]


@pytest.mark.skipif(not SOURCE, reason="LIBRA_PLAN_H200_SOURCE does not name the folder of the measurements")
def test_the_shipped_files_are_the_importers_output(tmp_path: Path) -> None:
    """Nobody edits a measurement by hand."""
    shipped_h200.import_h200(SOURCE, tmp_path)
    for name, content in tree(tmp_path).items():
        assert (shipped_folder() / name).read_bytes() == content, name
