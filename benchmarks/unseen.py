"""Predict the second H200 set from fits of the first: points the models have not seen.

    python benchmarks/unseen.py

Score rows below 1,024 tokens and train rows below 2,048 are launch-bound (two runs differ by up to
2x there) and listed apart. Memory is compared with peak reserved; `memory_runs.py` tries its bounds
both ways, at the shapes of both sets too.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict

from libra_plan.errors import RefusedError
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.schema import Point

FEW = {"decode": 0, "score": 1024, "train": 2048}


def query_of(point: Point) -> Query:
    return Query(batch_sequences=point.batch_sequences, seq_len_tokens=point.seq_len_tokens)


def compare(
    fit: FittedProfile, point: Point, found: dict[str, list[tuple[float, bool]]], refused: Counter[str]
) -> None:
    phase = fit.profile.phase
    tokens = point.batch_sequences * (point.seq_len_tokens or 0)
    group = phase if tokens >= FEW[phase] else f"{phase}, few tokens"
    try:
        time, memory = fit.time_s(query_of(point)), fit.memory_mib(query_of(point))
    except RefusedError:
        refused[group] += 1
        return
    if point.time_s is not None:
        inside = time.low <= point.time_s <= time.high
        found[f"{group} time"].append((abs(time.value / point.time_s - 1), inside))
    if point.peak_reserved_mib is not None:
        inside = point.peak_reserved_mib <= memory.high
        found[f"{group} memory"].append((abs(memory.value / point.peak_reserved_mib - 1), inside))


def main() -> None:
    profiles = load_folder(shipped_folder(), library=()).profiles
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    refused: Counter[str] = Counter()
    oom_called_feasible = 0
    for name, second in sorted(profiles.items()):
        first = profiles.get(name.replace("h200b-", "h200-"))
        if not name.startswith("h200b-") or first is None:
            continue
        fit = fit_profile(first.file, first.points)
        seen = {(point.batch_sequences, point.seq_len_tokens) for point in first.points}
        for point in second.points:
            if point.status == "ok" and (point.batch_sequences, point.seq_len_tokens) not in seen:
                compare(fit, point, found, refused)
            elif point.status == "oom":
                try:
                    bound = fit.memory_mib(query_of(point)).high
                    oom_called_feasible += bound <= second.file.hardware.memory_mib
                except RefusedError:
                    pass
    print(f"{'quantity':28} {'points':>6} {'median':>8} {'p90':>8} {'largest':>8} {'covered':>8}")
    for group, errors in sorted(found.items()):
        values = sorted(error for error, _ in errors)
        p90 = values[min(len(values) - 1, int(0.9 * len(values)))]
        covered = sum(inside for _, inside in errors) / len(errors)
        print(
            f"{group:28} {len(values):6} {statistics.median(values):8.2%} {p90:8.2%} {values[-1]:8.2%} "
            f"{covered:8.0%}"
        )
    print(f"refused: {dict(refused)}; ran out of memory but called feasible: {oom_called_feasible}")


if __name__ == "__main__":
    main()
