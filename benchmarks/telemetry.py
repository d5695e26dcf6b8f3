"""What counting costs, and how soon a change is found.

An add to a counter; a day of 64 GPUs at 1 Hz through the windows; false alarms of the change-point
test on a steady law, and the windows it takes to find one that shifted.

    python benchmarks/telemetry.py [--hours 24] [--ranks 64]

The day is written rank by rank to a temporary folder and each file is removed once it is read.
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import statistics
import tempfile
import time
import timeit
from pathlib import Path

import libra_plan
from libra_plan.models.corrections import Correction, with_observation
from libra_plan.planner.telemetry.throughput import Ledger
from libra_plan.planner.telemetry.work_windows import read_windows

ADDS, REPEATS = 100_000, 9


def add_ns() -> list[float]:
    """Time an add of tokens and samples, ns, repeatedly."""
    with tempfile.TemporaryDirectory() as folder:
        counter = libra_plan.counter(folder, task="bench", role="actor")
        times = timeit.repeat("add(4096, 1)", number=ADDS, repeat=REPEATS, globals={"add": counter.add})
        counter.close()
    return [each / ADDS * 1e9 for each in times]


def line(rank: int) -> str:
    """Return the line of a second, with places for the second."""
    return (
        f'{{"schema_version":1,"task":"agent","role":"actor","dp_rank":{rank},"rank":{rank},"source":"s{rank}",'
        '"clock":"c","start_s":%d,"t_s":%d,"utc_s":%d,"tokens":4096,"samples":2,"steps":1,"waiting_s":0.25,'
        '"queues":{"experience":64},"longest":{"experience":80},"staleness":1.0,"stalest":2}\n'
    )


def day(hours: float, ranks: int) -> tuple[float, int, int]:
    """Read every rank's day; give seconds, windows and stretches."""
    seconds, ledger, windows = 0.0, Ledger(), 0
    for rank in range(ranks):
        text = line(rank)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rank.jsonl"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(text % (at, at + 1, 1_700_000_000 + at) for at in range(int(hours * 3600)))
            begun = time.perf_counter()
            for window in read_windows([path], []):
                ledger.add(window)
                windows += 1
            seconds += time.perf_counter() - begun
    begun = time.perf_counter()
    stretches = sum(1 for _ in ledger.rates())
    return seconds + time.perf_counter() - begun, windows, stretches


def alarms(runs: int = 50, length: int = 2000, spread: float = 0.05) -> int:
    """Count false alarms on independent normal noise of one law."""
    found = 0
    for seed in range(runs):
        rng, state = random.Random(seed), Correction()
        for _ in range(length):
            state = with_observation(state, math.exp(rng.gauss(0.0, spread)), 1.0)
        found += state.changes
    return found


def delays(shift: float, runs: int = 200, spread: float = 0.05) -> list[int]:
    """Count the windows from a shift to its discovery, 500 at most."""
    found = []
    for seed in range(runs):
        rng, state, windows_ = random.Random(seed), Correction(), 0
        for _ in range(100):
            state = with_observation(state, math.exp(rng.gauss(0.0, spread)), 1.0)
        begun = state.changes
        while state.changes == begun and windows_ < 500:
            state = with_observation(state, shift * math.exp(rng.gauss(0.0, spread)), 1.0)
            windows_ += 1
        found.append(windows_)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--ranks", type=int, default=64)
    given = parser.parse_args()
    times = add_ns()
    print(f"add: median {statistics.median(times):.0f} ns ({min(times):.0f} to {max(times):.0f})")
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    seconds, windows, stretches = day(given.hours, given.ranks)
    after_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(
        f"{given.hours:g} h of {given.ranks} ranks at 1 Hz: {windows:,} windows to {stretches:,} rates in "
        f"{seconds:.1f} s ({windows / seconds:,.0f} /s), peak {after_mb:.0f} MB ({before_mb:.0f} before)"
    )
    print(f"false alarms in 100,000 steady windows of 5 % noise: {alarms()}")
    for shift in (1.05, 1.1, 1.25):
        found = sorted(delays(shift))
        print(f"a shift of {shift - 1:+.0%} is found after {found[100]} windows (median; 95 %: {found[190]})")


if __name__ == "__main__":
    main()
