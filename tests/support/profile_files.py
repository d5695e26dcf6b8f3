"""Small profiles, workloads and clusters on disk, for tests that change one thing in them."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import yaml

MODEL: dict[str, Any] = {
    "id": "tiny",
    "params": 450_000,
    "layers": 4,
    "hidden": 64,
    "heads": 28,
    "kv_heads": 4,
    "head_dim": 16,
    "ffn": 128,
    "vocab": 1000,
}
POINTS = "batch_sequences,seq_len_tokens,time_s\n1,512,0.01\n4,512,0.02\n4,2048,0.05\n"


def profile_data(name: str = "p", phase: str = "score", points: str = POINTS) -> dict[str, Any]:
    """Return a profile file as plain data, with the digest of its points."""
    return {
        "schema_version": 1,
        "id": name,
        "phase": phase,
        "model": dict(MODEL),
        "hardware": {"gpu_class": "h200_sxm", "memory_mib": 143155.0},
        "software": {"framework": "torch", "version": "2.11.0", "precision": "bf16"},
        "method": {"tokens_counted": "input", "throughput_basis": "total"},
        "provenance": {"kind": "measured", "points_sha256": hashlib.sha256(points.encode()).hexdigest()},
    }


def write_profile(root: Path, name: str = "p", phase: str = "score", points: str = POINTS) -> Path:
    """Write one profile folder under `root`."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "points.csv").write_bytes(points.encode())
    (folder / "profile.yaml").write_text(yaml.safe_dump(profile_data(name, phase, points)), encoding="utf-8")
    return folder


_WORKLOAD: dict[str, Any] = {
    "schema_version": 1,
    "tasks": [
        {
            "id": "rl",
            "work_per_step": {
                "samples": 8,
                "prompt_tokens": {"kind": "fixed", "tokens": 100},
                "response_tokens": {
                    "kind": "lognormal",
                    "median_tokens": 200,
                    "sigma": 1.0,
                    "max_tokens": 1000,
                },
            },
            "roles": [
                {"id": "rollout", "kind": "rollout", "profiles": ["d"]},
                {"id": "actor", "kind": "actor_train", "profiles": ["t"], "micro_batch_tokens": 1100},
                {
                    "id": "env",
                    "kind": "env",
                    "workers": 2,
                    "cpu_cores_per_worker": 1,
                    "host_memory_mib_per_worker": 512,
                },
            ],
        }
    ],
}


def workload_data() -> dict[str, Any]:
    """Return a workload of one task as plain data: a rollout, an actor and an environment."""
    return copy.deepcopy(_WORKLOAD)


def write_folder(root: Path, workload: dict[str, Any] | None = None) -> Path:
    """Write a folder with a decode, a score and a train profile and a workload."""
    for name, phase in (("d", "decode"), ("s", "score"), ("t", "train")):
        write_profile(root, name, phase)
    (root / "workload.yaml").write_text(yaml.safe_dump(workload or workload_data()), encoding="utf-8")
    return root
