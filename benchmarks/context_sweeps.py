"""Print whether a term for context parallelism would explain torchtitan's sweeps.

    python benchmarks/context_sweeps.py --data DIR

DIR holds torchtitan_llama3_train.csv. Each of its two sweeps doubles the context-parallel degree with the
length. Candidates are fitted with non-negative coefficients by relative error; a point at a time is left out.
"""

from __future__ import annotations

import argparse
import csv
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from libra_plan.models.costs.base import Array, relative_nnls
from libra_plan.models.network import Link, ring_exchange_s
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.hardware import gpu_limits
from libra_plan.profiles.schema import ModelShape, Software

SHAPES = {
    "8B": ModelShape(
        id="llama-3.1-8b", params=8_030_261_248, layers=32, hidden=4096, heads=32, kv_heads=8,
        head_dim=128, ffn=14_336, vocab=128_256,
    ),
    "405B": ModelShape(
        id="llama-3.1-405b", params=405_853_388_800, layers=126, hidden=16_384, heads=128, kv_heads=8,
        head_dim=128, ffn=53_248, vocab=128_256,
    ),
}  # fmt: skip
SOFTWARE = Software(framework="torchtitan", version="2024-12", precision="fp8", recompute="full")
LINK_GIB_PER_S = {1: 365.0, 8: 46.6}
"""Between the GPUs of a node, and one 400 Gbit/s adapter a GPU where tensor parallelism fills the node."""
PASSES = 4.0


@dataclass(frozen=True)
class Row:
    """One published point: seconds per token and GPU, and what physics puts into it at best."""

    model: str
    seconds: float
    multiplied_s: float
    attended_s: float
    ring_s: float


def read(path: Path) -> list[Row]:
    """Read the rows whose length is stated."""
    rows = []
    with path.open(newline="", encoding="utf-8") as stream:
        for line in csv.DictReader(stream):
            found = re.search(r"CP (\d+)", line["Parallelism"] or "")
            if found and line["Sequence Length"]:
                model = "405B" if "405B" in line["table"] else "8B"
                rate = float(line["TPS/GPU"].replace(",", ""))
                rows.append(point(model, float(line["Sequence Length"]), int(found[1]), 1.0 / rate))
    return rows


def point(model: str, length: float, ranks: int, seconds: float) -> Row:
    """Return one row with its physics, per token and GPU of the replica."""
    shape, limits = SHAPES[model], gpu_limits("h100_sxm")
    assert limits is not None
    rate = limits.bf16_per_s
    layout = Layout(tp=8, pp=1, cp=ranks) if model == "405B" else Layout(cp=ranks)
    ring = ring_exchange_s(shape, SOFTWARE, "train", layout, length, Link(LINK_GIB_PER_S[layout.tp]))
    attended = PASSES * 2.0 * shape.layers * shape.hidden * length / rate
    per_token = ring * layout.gpus_per_replica / length
    return Row(model, seconds, PASSES * 2.0 * shape.params / rate, attended, per_token)


def terms(rows: list[Row], name: str) -> Array:
    """Return the terms of one candidate, (rows, coefficients)."""
    own = [[row.multiplied_s * (row.model == model) for model in SHAPES] for row in rows]
    attended = [[row.attended_s * (row.model == model) for model in SHAPES] for row in rows]
    shared = [[row.attended_s] for row in rows]
    ring = [[row.ring_s] for row in rows]
    parts = {
        "a + c·S of each sweep": (own, attended),
        "a of each sweep, c shared": (own, shared),
        "a of each sweep, c shared, ring": (own, shared, ring),
        "a + c·S of each sweep, ring": (own, attended, ring),
    }
    return np.hstack([np.array(part) for part in parts[name]])


CANDIDATES = (
    "a + c·S of each sweep",
    "a + c·S of each sweep, ring",
    "a of each sweep, c shared",
    "a of each sweep, c shared, ring",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Try terms for context parallelism on torchtitan's sweeps.")
    parser.add_argument("--data", type=Path, required=True, help="folder with the published tables")
    rows = read(parser.parse_args().data / "torchtitan_llama3_train.csv")
    measured = np.array([row.seconds for row in rows])
    shares = [row.ring_s / row.seconds for row in rows]
    print(f"ring attention, share of a step: {100 * min(shares):.2f} to {100 * max(shares):.2f} %")
    for name in CANDIDATES:
        every = terms(rows, name)
        numbers = relative_nnls(every, measured, rounds=1)
        left = []
        for out in range(len(rows)):
            kept = np.arange(len(rows)) != out
            found = relative_nnls(every[kept], measured[kept], rounds=1)
            left.append(abs(float(every[out] @ found) / measured[out] - 1))
        inside = statistics.median(np.abs(every @ numbers / measured - 1).tolist())
        print(
            f"{name:34} in sample {100 * inside:5.1f} %, left out {100 * statistics.median(left):5.1f} %; "
            f"coefficients {', '.join(f'{number:.3g}' for number in numbers)}"
        )


if __name__ == "__main__":
    main()
