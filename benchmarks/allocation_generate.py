"""Make seeded allocation instances of any size, in the format of the frozen ones.

Model sizes, weights, roles, how many GPUs a role may use and how rates scale follow the frozen
files: on average 25 GPUs of room and twice as much demand per task, three GPU types in equal parts,
4 % of the nodes short of one to four GPUs.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

TYPES = {"A100": (80, 1.0), "H100": (80, 2.0), "H200": (141, 2.9)}
SIZES = (1, 2, 4, 8, 16)
MODELS = (0.5, 1.5, 3.0, 7.0, 14.0, 32.0, 70.0)  # billions of parameters
MODEL_SHARES = (0.06, 0.12, 0.16, 0.28, 0.2, 0.12, 0.06)
GIB_PER_B = {"train": 18.0, "critic": 14.0, "rollout": 2.2, "ref": 2.1, "reward": 1.2, "colo": 20.0}
WORK = {"train": 1.0, "rollout": 3.2, "ref": 0.33, "reward": 0.09, "critic": 0.27, "colo": 4.6}
EFFICIENCY = {"train": 0.96, "critic": 0.95, "rollout": 0.93, "ref": 0.9, "reward": 0.9, "colo": 0.94}


def generate(nodes: int, tasks: int, seed: int) -> dict[str, Any]:
    """Make an instance of so many 8-GPU nodes and tasks."""
    rng = np.random.default_rng(seed)
    cluster = [_node(rng, i, nodes) for i in range(nodes)]
    gpus = sum(len(node["usable_gpus"]) for node in cluster)
    work = [_task(rng, i, 1.9 * gpus / tasks) for i in range(tasks)]
    return _instance(cluster, work, seed)


def _instance(cluster: list[dict[str, Any]], work: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    return {
        "nodes": len(cluster),
        "tasks": len(work),
        "seed": seed,
        "capacity_gb": {name: memory for name, (memory, _) in TYPES.items()},
        "best_objective_known": None,
        "best_bound_known": None,
        "cluster": cluster,
        "work": work,
    }


def from_inventory(path: Path, tasks: int, seed: int) -> dict[str, Any]:
    """Make an instance on the nodes of an inventory (CSV: sn, cpu_milli, memory_mib, gpu, model).

    Its GPU models have none of the shipped types' names: they are dealt out to `TYPES` by falling number
    of GPUs, so that node sizes and the mix of classes are real, speeds and memory those of the types.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["gpu"])]
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["model"]] += int(row["gpu"])
    kind = {model: list(TYPES)[at % len(TYPES)] for at, (model, _) in enumerate(counts.most_common())}
    cluster = [
        {"id": at, "gpu_type": kind[row["model"]], "usable_gpus": list(range(int(row["gpu"])))}
        for at, row in enumerate(rows)
    ]
    rng = np.random.default_rng(seed)
    work = [_task(rng, i, 1.9 * counts.total() / tasks) for i in range(tasks)]
    return _instance(cluster, work, seed)


def _node(rng: np.random.Generator, number: int, nodes: int) -> dict[str, Any]:
    lost = int(rng.choice([1, 1, 1, 2, 4])) if rng.random() < 0.04 else 0
    keep = sorted(int(i) for i in rng.choice(8, 8 - lost, replace=False))
    return {"id": number, "gpu_type": list(TYPES)[number * 3 // nodes], "usable_gpus": keep}


def _task(rng: np.random.Generator, number: int, gpus: float) -> dict[str, Any]:
    model = float(rng.choice(MODELS, p=MODEL_SHARES))
    weight = int(rng.choice([1, 2, 4], p=[0.49, 0.28, 0.23]))
    names = ["train", "rollout"]
    names += [
        name for name, share in (("ref", 0.62), ("reward", 0.65), ("critic", 0.32)) if rng.random() < share
    ]
    # Larger models have more GPUs and lower rates, so that unlike tasks are worth about as much.
    room = gpus * float(rng.lognormal(-0.25, 0.6)) * (0.5 + math.sqrt(model / 10))
    total = sum(WORK[name] for name in names)
    speed = total / max(room, 1.0) * 2.2
    roles = [
        _role(rng, name, model, weight, speed, max(1, round(room * WORK[name] / total))) for name in names
    ]
    colocated = None
    if rng.random() < 0.5:
        colocated = _role(rng, "colo", model, weight, speed, max(1, round(0.9 * room)))
    return {"id": number, "weight": weight, "roles": roles, "colocated": colocated}


def _role(
    rng: np.random.Generator, name: str, model: float, weight: int, speed: float, most: int
) -> dict[str, Any]:
    kind = "table" if name in ("train", "critic", "colo") else "sum"
    configs: list[dict[str, Any]] = []
    for gpu_type, (memory, fast) in TYPES.items():
        factor = fast * float(rng.uniform(0.9, 1.1)) * speed / WORK[name]
        fitting = [k for k in SIZES if model * GIB_PER_B[name] / k + 4 <= memory]
        for k in fitting[:3] if kind == "sum" else fitting[:4]:
            if k > most and configs:
                continue
            need = model * GIB_PER_B[name] / k + 4
            rate = (
                factor
                * k
                * EFFICIENCY[name] ** math.log2(max(k / fitting[0], 1))
                * float(rng.uniform(0.96, 1.04))
            )
            configs.append(_config(rng, gpu_type, k, need, rate, max(most, fitting[0]), kind))
        if kind == "sum" and name != "rollout" and need_of_share(model, name) <= 0.35 * memory:
            for quarters in (1, 2):
                rate = factor * quarters / 4 * float(rng.uniform(0.9, 1.0))
                share = _config(rng, gpu_type, 0, need_of_share(model, name), rate, most, kind)
                configs.append({**share, "compute_quarters": quarters, "max_replicas": 6})
    smallest = min(c["gpus_per_replica"] for c in configs)
    loss = (
        weight * {"train": 20, "colo": 20, "critic": 15}.get(name, 10) / 3600 * float(rng.uniform(0.8, 1.2))
    )
    return {
        "name": name,
        "kind": kind,
        "max_gpus": max(most, smallest),
        "switch_loss_per_gpu": loss,
        "configs": configs,
    }


def need_of_share(model: float, name: str) -> float:
    """Give the memory of a share of a GPU, GiB."""
    return model * GIB_PER_B[name] + 5


def _config(
    rng: np.random.Generator, gpu_type: str, k: int, memory: float, rate: float, most: int, kind: str
) -> dict[str, Any]:
    number = max(1, most // k) if k else 6
    config = {
        "gpu_type": gpu_type,
        "gpus_per_replica": k,
        "compute_quarters": 4 * k,
        "memory_gb_per_gpu": memory,
        "rate_per_replica": rate,
        "max_replicas": min(number, 16) if kind == "table" else number,
    }
    if kind == "table":
        fall = float(rng.uniform(0.93, 0.99))
        config["rate_table"] = [
            rate * n * fall ** math.log2(n) if n else 0.0 for n in range(config["max_replicas"] + 1)
        ]
    return config
