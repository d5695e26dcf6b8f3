"""Turn the H200 measurements into the shipped profiles.

    python benchmarks/shipped_h200.py SOURCE profiles/

SOURCE holds `meta.json`, `role_profiles.csv` and `sharing_and_migration.jsonl`. The output depends on
them alone, so a second run changes nothing.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.profiles.profile_folder import folder_texts, sha256_of, yaml_text
from libra_plan.profiles.schema import (
    Hardware,
    MeasuredSpread,
    Method,
    ModelShape,
    Phase,
    Point,
    ProfileFile,
    Provenance,
    SharedRate,
    Software,
    SwitchingFile,
)

GPU_CLASS = "h200_sxm"
PROFILES_SOURCE = "role_profiles.csv"
SHARING_SOURCE = "sharing_and_migration.jsonl"

# Shapes of the published Qwen2.5 configurations; the parameter counts are those of the measurement.
_SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": {"layers": 24, "hidden": 896, "heads": 14, "kv_heads": 2, "ffn": 4864, "vocab": 151936},
    "qwen2.5-1.5b": {"layers": 28, "hidden": 1536, "heads": 12, "kv_heads": 2, "ffn": 8960, "vocab": 151936},
    "qwen2.5-7b": {"layers": 28, "hidden": 3584, "heads": 28, "kv_heads": 4, "ffn": 18944, "vocab": 152064},
}
_HEADER = "# Written by `python benchmarks/shipped_h200.py`; change the script, not this file.\n"
_NOTES = {
    "decode": "one decode step at a full context, replayed as a CUDA graph",
    "score": "one forward pass that gives log-probabilities",
    "train": "one optimizer step with full recomputation",
}
_FLAGS: dict[str, dict[str, str | int | float | bool]] = {
    "decode": {"attention": "sdpa", "weights": "random"},
    "score": {"attention": "sdpa", "weights": "random"},
    "train": {"attention": "sdpa", "weights": "random", "optimizer": "fused AdamW"},
}


def import_h200(source_dir: str | Path, target_dir: str | Path) -> tuple[Path, ...]:
    """Write every profile folder and the switching file under `target_dir`; give the files written."""
    source, target = Path(source_dir), Path(target_dir)
    contents = {name: (source / name).read_bytes() for name in ("meta.json", PROFILES_SOURCE, SHARING_SOURCE)}
    files = profile_files(contents)
    files["h200-switching/switching.yaml"] = yaml_text(switching_file(contents[SHARING_SOURCE]), _HEADER)
    for name, text in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tuple(target / name for name in files)


def profile_files(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Make the text of every profile folder's files from the bytes of the sources."""
    links = switching_file(contents[SHARING_SOURCE])
    meta = {**json.loads(contents["meta.json"]), "links": links}
    files: dict[str, str] = {}
    table = list(csv.DictReader(io.StringIO(contents[PROFILES_SOURCE].decode())))
    for model, role in sorted({(row["model"], row["role"]) for row in table}):
        rows = [row for row in table if (row["model"], row["role"]) == (model, role)]
        profile = _csv_profile(rows, meta, sha256_of(contents[PROFILES_SOURCE]))
        _add(files, profile, [_csv_point(row) for row in rows])
    params = {row["model"]: int(row["params"]) for row in table}
    precision = {row["model"]: row["precision"] for row in table if row["role"] == "train"}
    events = _events(contents[SHARING_SOURCE])
    ddp = [event for event in events if event["kind"] == "ddp"]
    for model in sorted({event["model"] for event in ddp}):
        rows = [event for event in ddp if event["model"] == model]
        base = _profile(f"h200-{model}-train-ddp", "train", model, params[model], meta)
        profile = msgspec.structs.replace(
            base,
            software=_software(meta, "train", precision[model], "full", "ddp"),
            provenance=_provenance(SHARING_SOURCE, sha256_of(contents[SHARING_SOURCE])),
        )
        _add(files, profile, [_ddp_point(row) for row in rows])
    return files


def switching_file(content: bytes) -> SwitchingFile:
    """Summarise what starting, moving and sharing cost, from the bytes of the JSON lines."""
    events = _events(content)

    def readings(kind: str, key: str = "gib_per_s") -> list[float]:
        return [event[key] for event in events if event["kind"] in kind.split()]

    def rates(kind: str, seconds: str) -> list[float]:
        return [event["gib"] / event[seconds] for event in events if event["kind"] == kind]

    return SwitchingFile(
        schema_version=1,
        gpu_class=GPU_CLASS,
        start_s=_spread(
            event["import_cuda_nccl_s"][-1] for event in events if event["kind"] == "torchrun_start"
        ),
        save_gib_per_s=_spread(rates("checkpoint", "save_s")),
        load_gib_per_s=_spread(rates("checkpoint", "load_s")),
        p2p_gib_per_s=_spread(readings("p2p")),
        pinned_host_gib_per_s=_spread(readings("d2h_pinned h2d_pinned")),
        pageable_host_gib_per_s=_spread(readings("d2h_pageable")),
        broadcast_gib_per_s=_spread(rates("nccl", "broadcast_s")),
        all_reduce_gib_per_s=_spread(rates("nccl", "all_reduce_s")),
        shared_gpu=tuple(
            SharedRate(a=event["a"], b=event["b"], rate_a=event["rel"][0], rate_b=event["rel"][1])
            for event in events
            if event["kind"] == "shared"
        ),
        kind="measured",
        source=SHARING_SOURCE,
        source_sha256=sha256_of(content),
        notes="two H200 joined by 18 NVLink links; start: torchrun with 1 and 2 ranks; GiB = 2^30 bytes",
    )


def _events(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.decode().splitlines() if line.strip()]


def _spread(values: Iterable[float]) -> MeasuredSpread:
    """Summarise readings; the 90th percentile is the nearest rank, so it was truly read once."""
    ordered = sorted(values)
    p90 = ordered[math.ceil(0.9 * len(ordered)) - 1]
    numbers = {"typical": statistics.median(ordered), "low": ordered[0], "high": ordered[-1], "p90": p90}
    return MeasuredSpread(n=len(ordered), **{name: round(value, 4) for name, value in numbers.items()})


def _provenance(source: str, digest: str) -> Provenance:
    # points_sha256 is filled in by `folder_texts`, once the points are text
    return Provenance(kind="measured", points_sha256="0" * 64, source=source, source_sha256=digest)


def _software(
    meta: Mapping[str, Any], role: str, precision: str, recompute: str | None, mode: str | None
) -> Software:
    return Software(
        framework="transformers",
        version=meta["transformers"],
        precision=precision,
        recompute=recompute,
        mode=mode,
        torch=meta["torch"],
        transformers=meta["transformers"],
        flags=_FLAGS[role],
    )


def _profile(name: str, phase: Phase, model: str, params: int, meta: Mapping[str, Any]) -> ProfileFile:
    shape = _SHAPES[model]
    return ProfileFile(
        schema_version=1,
        id=name,
        phase=phase,
        model=ModelShape(id=model, params=params, head_dim=shape["hidden"] // shape["heads"], **shape),
        hardware=Hardware(
            gpu_class=GPU_CLASS,
            nvml_name=meta["gpu"],
            memory_mib=meta["total_mib"],
            intra_node_gib_per_s=meta["links"].p2p_gib_per_s.typical,
            host_link_gib_per_s=meta["links"].pinned_host_gib_per_s.typical,
            driver=meta["driver"],
            cuda=meta["cuda"],
        ),
        software=_software(meta, phase, "bf16", None, None),
        method=Method(
            tokens_counted="output" if phase == "decode" else "input",
            throughput_basis="total",
        ),
        provenance=_provenance(PROFILES_SOURCE, "0" * 64),
        notes=_NOTES[phase] + f"; device_used_mib counts the {meta['idle_used_mib']:g} MiB of an idle card",
    )


def _csv_profile(rows: Sequence[Mapping[str, str]], meta: Mapping[str, Any], digest: str) -> ProfileFile:
    first = rows[0]
    phase = msgspec.convert(first["role"], Phase)
    base = _profile(f"h200-{first['model']}-{phase}", phase, first["model"], int(first["params"]), meta)
    software = _software(meta, phase, first["precision"], first["recompute"] or None, first["mode"] or None)
    return msgspec.structs.replace(base, software=software, provenance=_provenance(PROFILES_SOURCE, digest))


def _csv_point(row: Mapping[str, str]) -> Point:
    return Point(
        batch_sequences=int(row["batch"]),
        seq_len_tokens=int(row["seq_len"]),
        time_s=float(row["step_s"]),
        time_low_s=float(row["step_s_min"]),
        time_high_s=float(row["step_s_max"]),
        tokens_per_s=float(row["tokens_per_s"]),
        peak_allocated_mib=float(row["peak_allocated_mib"]),
        peak_reserved_mib=float(row["peak_reserved_mib"]),
        device_used_mib=float(row["device_used_mib"]),
    )


def _ddp_point(row: Mapping[str, Any]) -> Point:
    return Point(
        batch_sequences=row["per_gpu_batch"],
        seq_len_tokens=row["seq_len"],
        dp=row["world"],
        time_s=row["step_s"],
        tokens_per_s=row["tokens_per_s"],
    )


def _add(files: dict[str, str], profile: ProfileFile, points: Sequence[Point]) -> None:
    for name, text in folder_texts(profile, points, _HEADER).items():
        files[f"{profile.id}/{name}"] = text


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the importer from the command line."""
    parser = argparse.ArgumentParser(description="Turn the H200 measurements into profiles folders.")
    parser.add_argument("source", type=Path, help="folder with role_profiles.csv and the other sources")
    parser.add_argument("target", type=Path, help="profiles folder to write into")
    given = parser.parse_args(arguments)
    import_h200(given.source, given.target)


if __name__ == "__main__":
    main()
