"""Compare two sets of measured profiles point by point; write the comparison as Markdown.

    python benchmarks/compare_h200.py > docs/measurements/h200_comparison.md

A profile of the measured set (`h200b-…`) is paired with the reference profile (`h200-…`) of the same
model and phase; points are paired by shape. Ratios are measured / reference.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from libra_plan.profiles.catalog import LoadedProfile, load_profile
from libra_plan.profiles.points import read_points
from libra_plan.profiles.schema import Point

PHASES = ("decode", "score", "train")
MEMORY = ("peak_allocated_mib", "peak_reserved_mib", "device_used_mib")

INTRODUCTION = """# Two sets of H200 measurements, point by point

Written by `python benchmarks/compare_h200.py`; change the script, not this file.

`h200-*` is the first set; `h200b-*` was measured later by `profiles/measure/` on another H200 with the
same driver, CUDA, torch and transformers, over `benchmarks/h200b/points.csv`. About half of its shapes
are in neither direction part of the first set, so they can test cost models that were fitted on it.
Ratios are h200b / h200: 1.00 is agreement. "90 % within" is the 90th percentile of |ratio − 1|.
"""

READING = """
## How to read it

- **Time** agrees where the GPU is the limit. Where the host is (a forward or a training step of few
  tokens: launching the kernels takes longer than running them), it depends on the machine: on two
  machines of one kind the same forward of 0.5B at 1 × 512 took 18 ms and 32 ms. All the large ratios
  are of this kind; the spread columns, (highest − lowest) / median of the repeats, tell it too.
- **Memory allocated** differs by a constant for each profile: the MiB column barely moves within a
  table. For decode it is a whole multiple of 33 MiB. A trial of ours that took a new stream for each
  shape grew by 33 MiB a shape, which is a cuBLAS workspace; so what earlier shapes left behind very
  likely counts in the first set. Here workspaces are freed before each shape.
- **Memory reserved** depends on the allocator's history within the point; read it as an upper bound.
- **Decoding without a mask** (`decode-gqa`) has no counterpart in the first set and is compared with the
  masked step of the same shape: a static cache with a causal mask makes SDPA copy the KV heads out to all
  query heads, which costs most of the time at long contexts.
"""


@dataclass(frozen=True)
class Pair:
    """One shape measured twice."""

    measured: Point
    reference: Point

    def ratio(self, name: str) -> float | None:
        """Divide measured by reference; None where one is unknown."""
        new, old = getattr(self.measured, name), getattr(self.reference, name)
        return None if new is None or old is None else new / old

    def more_mib(self, name: str) -> float | None:
        """Subtract the reference from the measured memory."""
        new, old = getattr(self.measured, name), getattr(self.reference, name)
        return None if new is None or old is None else new - old


def _points(folder: Path) -> dict[tuple[int, int | None], Point]:
    # Raw rows: a comparison must also show those the catalog sets aside as implausible.
    return {(p.batch_sequences, p.seq_len_tokens): p for p in read_points(folder / "points.csv").points}


def _pairs(measured: Path, reference: Path) -> list[Pair]:
    new, old = _points(measured), _points(reference)
    return [Pair(new[key], old[key]) for key in sorted(new.keys() & old.keys()) if new[key].status == "ok"]


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def _summary(values: Sequence[float]) -> str:
    off = [abs(value - 1) for value in values]
    return f"{statistics.median(values):.3f} | {_percentile(off, 0.9):.1%} | {max(off):.1%}"


def _known(pairs: Sequence[Pair], read: Callable[[Pair], float | None]) -> list[float]:
    return [value for value in map(read, pairs) if value is not None]


def _spread(point: Point) -> str:
    if point.time_s is None or point.time_low_s is None or point.time_high_s is None:
        return ""
    return f"{(point.time_high_s - point.time_low_s) / point.time_s:.0%}"


def _table(pairs: Sequence[Pair]) -> Iterator[str]:
    yield (
        "| batch × tokens | h200 s | h200b s | time | spread h200 | spread h200b "
        "| allocated | MiB more | reserved | device used |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for pair in pairs:
        new, old = pair.measured, pair.reference
        ratios = [pair.ratio(name) for name in ("time_s", *MEMORY)]
        time, allocated, reserved, used = ("" if ratio is None else f"{ratio:.3f}" for ratio in ratios)
        more = pair.more_mib("peak_allocated_mib")
        yield (
            f"| {new.batch_sequences} × {new.seq_len_tokens} | {old.time_s:.5f} | {new.time_s:.5f} | {time} "
            f"| {_spread(old)} | {_spread(new)} | {allocated} | {'' if more is None else f'{more:+.0f}'} "
            f"| {reserved} | {used} |"
        )


def _models(folder: Path) -> list[str]:
    names = (path.name for path in folder.glob("h200b-*-train"))
    return sorted(
        (name.removeprefix("h200b-").removesuffix("-train") for name in names),
        key=lambda model: float(model.rpartition("-")[2].rstrip("b")),
    )


def _overall(groups: dict[str, list[Pair]]) -> Iterator[str]:
    yield "\n## Summary\n"
    yield "| phase | points in both | figure | median ratio | 90 % within | worst |"
    yield "|---|---|---|---|---|---|"
    for phase in PHASES:
        pairs = [pair for name, found in groups.items() if name.endswith(phase) for pair in found]
        for name in ("time_s", *MEMORY):
            values = _known(pairs, lambda pair, name=name: pair.ratio(name))  # type: ignore[misc]
            yield f"| {phase} | {len(values)} | {name} | {_summary(values)} |"
    busy = [pair for found in groups.values() for pair in found if _gpu_bound(pair)]
    yield f"| all, GPU-bound | {len(busy)} | time_s | {_summary(_known(busy, lambda p: p.ratio('time_s')))} |"
    yield (
        "\nGPU-bound: every decode step (a replayed graph) and every score and train step of at least "
        "8,192 tokens; below that launching from the host shows."
    )


def _gpu_bound(pair: Pair) -> bool:
    point = pair.measured
    return _is_decode(point) or point.batch_sequences * (point.seq_len_tokens or 1) >= 8192


def _is_decode(point: Point) -> bool:
    """Whether a row is of decoding: it counts one token a sequence."""
    if point.tokens_per_s is None or point.time_s is None:
        return False
    return abs(point.tokens_per_s * point.time_s - point.batch_sequences) < 0.01 * point.batch_sequences


def _new_shapes(measured: Path, reference: Path, models: Sequence[str]) -> Iterator[str]:
    yield "\n## Shapes that only the second set has\n"
    yield "| profile | measured | out of memory | shapes not in the first set |"
    yield "|---|---|---|---|"
    for model in models:
        for phase in PHASES:
            new = _points(measured / f"h200b-{model}-{phase}")
            old = _points(reference / f"h200-{model}-{phase}")
            only = sorted(key for key in new.keys() - old.keys() if new[key].status == "ok")
            oom = sum(point.status == "oom" for point in new.values())
            shapes = ", ".join(f"{batch}×{tokens}" for batch, tokens in only)
            yield f"| h200b-{model}-{phase} | {len(new) - oom} | {oom} | {len(only)}: {shapes} |"


def _unmasked(measured: Path, models: Sequence[str]) -> Iterator[str]:
    yield "\n## Decoding without a mask against with one (both h200b)\n"
    yield "| model | shapes in both | median speed-up | largest speed-up | at |"
    yield "|---|---|---|---|---|"
    for model in models:
        masked = _points(measured / f"h200b-{model}-decode")
        free = _points(measured / f"h200b-{model}-decode-gqa")
        gains = {
            key: masked[key].time_s / free[key].time_s  # type: ignore[operator]
            for key in masked.keys() & free.keys()
            if masked[key].status == free[key].status == "ok"
        }
        best = max(gains, key=lambda key: gains[key])
        yield (
            f"| {model} | {len(gains)} | {statistics.median(gains.values()):.2f}× | {gains[best]:.1f}× "
            f"| {best[0]} × {best[1]} |"
        )


def _provenance(profile: LoadedProfile) -> str:
    hardware, software = profile.file.hardware, profile.file.software
    return (
        f"\nSecond set: {hardware.nvml_name}, {hardware.memory_mib} MiB, limit {hardware.power_limit_w} W, "
        f"driver {hardware.driver}, CUDA {hardware.cuda}, torch {software.torch}, transformers "
        f"{software.transformers}; {profile.file.method.clock}; up to {profile.file.method.repeats} repeats "
        f"after {profile.file.method.warmup} warm-up steps; {profile.file.method.date}.\n"
    )


def report(measured: Path, reference: Path) -> str:
    """Write the whole comparison."""
    models = _models(measured)
    groups = {
        f"{model}-{phase}": _pairs(measured / f"h200b-{model}-{phase}", reference / f"h200-{model}-{phase}")
        for model in models
        for phase in PHASES
    }
    lines = [INTRODUCTION + _provenance(load_profile(measured / f"h200b-{models[-1]}-decode"))]
    lines += [*_overall(groups), READING.rstrip(), *_new_shapes(measured, reference, models)]
    lines += [*_unmasked(measured, models), "\n## Point by point"]
    for name, pairs in groups.items():
        ratios = _known(pairs, lambda pair: pair.ratio("time_s"))
        lines += [
            f"\n### {name}\n",
            f"Time: median {statistics.median(ratios):.3f}, 90 % within "
            f"{_percentile([abs(ratio - 1) for ratio in ratios], 0.9):.1%} ({len(pairs)} points).\n",
            *_table(pairs),
        ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    shipped = Path(__file__).resolve().parent.parent / "profiles"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", type=Path, default=shipped, help="folder of the h200-* profiles")
    parser.add_argument("--measured", type=Path, default=shipped, help="folder of the h200b-* profiles")
    given = parser.parse_args(arguments)
    sys.stdout.write(report(given.measured, given.reference))
    return 0


if __name__ == "__main__":
    sys.exit(main())
