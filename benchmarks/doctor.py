"""What a day of 64 GPUs at 1 Hz costs to sum up in windows, and to diagnose.

    python benchmarks/doctor.py [--hours 24] [--gpus 64]

Nodes of eight simulated GPUs go through steps of a rollout with a tail and of training, and every
GPU has a rank that is counted in windows of 10 s. Each node's recording is written to a temporary
folder and removed once it is read. Peak memory is that of the whole process, so the doctor goes first.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from libra_plan.planner.doctor import Thresholds, gather, judge
from libra_plan.planner.doctor.fold import SampleFold
from libra_plan.planner.doctor.work import WorkFold
from libra_plan.planner.telemetry.recording import RecordingReader
from libra_plan.planner.telemetry.simulated import SimulatedSource
from libra_plan.planner.telemetry.sources import Clocks
from libra_plan.planner.telemetry.summary import node_windows
from libra_plan.planner.telemetry.work_windows import WorkWindow

PER_NODE = 8
PERIOD_S = 900  # ten steps; then the same readings again, at other times
UTC_S = 1_700_000_000


def templates(node: str, gpus: int) -> list[str]:
    """Return a line a second of a period, with places for stamp and monotonic seconds."""
    now = [0.0]
    source = SimulatedSource(gpus, node, Clocks(lambda: UTC_S + now[0], lambda: now[0]), random.Random(node))
    encode, found = msgspec.json.Encoder().encode, []
    for second in range(PERIOD_S):
        now[0] = float(second)
        (sample,) = source.read()
        fields = msgspec.json.decode(encode(sample))
        rest = msgspec.json.encode({**fields, "taken_utc": "@", "monotonic_s": "#"}).decode()
        found.append(rest.replace("%", "%%").replace('"@"', '"%s"').replace('"#"', "%d") + "\n")
    return found


def record(folder: Path, node: str, gpus: int, seconds: int) -> int:
    """Write a node's recording; give its bytes."""
    lines, part = templates(node, gpus), folder / "telemetry-000001.jsonl"
    with part.open("w", encoding="utf-8") as file:
        file.write(
            f'{{"kind":"header","schema_version":1,"node":"{node}","source":"simulated","run":"{node}",'
            '"began_utc":"2023-11-14T22:13:20Z","interval_s":1.0}\n'
        )
        for second in range(seconds):
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(UTC_S + second))
            file.write(lines[second % PERIOD_S] % (stamp, second))
    return part.stat().st_size


def counts(rank: int, seconds: int) -> Iterator[WorkWindow]:
    """Return a rank's windows; half of the ranks train, the others roll out."""
    role = "actor" if rank % 2 else "rollout"
    for end_s in range(10, seconds + 1, 10):
        yield WorkWindow(
            start_s=end_s - 10.0,
            end_s=float(end_s),
            utc_s=float(UTC_S + end_s),
            task="agent",
            role=role,
            dp_rank=rank // 2,
            source=f"rank{rank}",
            clock="boot",
            tokens=40960.0,
            samples=20.0,
            steps=1.0,
            waiting_s=4.0 if rank % 2 else 0.5,
            queues={"experience": float(end_s % 70)},
        )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--gpus", type=int, default=64)
    given = parser.parse_args()
    seconds, nodes = int(given.hours * 3600), given.gpus // PER_NODE
    limits = Thresholds()
    samples, work = SampleFold(limits), WorkFold(limits)
    spent = {"doctor": 0.0, "windows": 0.0}
    summed = written = 0
    before_mb, after_mb = peak_mb(), 0.0
    for number in range(nodes):
        with tempfile.TemporaryDirectory() as name:
            written += record(Path(name), f"node{number}", PER_NODE, seconds)
            begun = time.perf_counter()
            samples.add_all(RecordingReader(Path(name)))
            spent["doctor"] += time.perf_counter() - begun
            after_mb = after_mb or peak_mb()
            begun = time.perf_counter()
            summed += sum(len(window.gpus) for window in node_windows(RecordingReader(Path(name)), 600.0))
            spent["windows"] += time.perf_counter() - begun
    begun = time.perf_counter()
    for rank in range(given.gpus):
        work.add_all(counts(rank, seconds))
    counted_s = time.perf_counter() - begun
    begun = time.perf_counter()
    evidence = gather(samples, work)
    found = judge(evidence, limits)
    judged_s = time.perf_counter() - begun
    looks = seconds * nodes
    print(
        f"{given.hours:g} h of {nodes * PER_NODE} GPUs at 1 Hz: {looks:,} samples, {written / 2**30:.1f} GiB"
    )
    print(f"doctor, reading and folding: {spent['doctor']:.1f} s ({looks / spent['doctor']:,.0f} samples/s)")
    print(f"doctor, {given.gpus} ranks' counts of 10 s: {counted_s:.1f} s; judging: {judged_s:.2f} s")
    print(f"windows of 600 s: {spent['windows']:.1f} s, {summed:,} of GPUs")
    print(f"peak memory {peak_mb():.0f} MB ({before_mb:.0f} before, {after_mb:.0f} after the first node)")
    print("found: " + (", ".join(each.code for each in found.findings) or "nothing"))


if __name__ == "__main__":
    main()
