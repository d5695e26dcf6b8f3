"""Measure what `libra-plan monitor` costs: CPU at one look a second, and bytes of a recording.

    python benchmarks/monitor.py [--seconds 30] [--source simulated:8]

The program runs as its users run it, with a recording and metrics; its CPU time is read from the
system, start-up left out. `--source nvml` does the same on a machine with GPUs. Then the reader of
NVML is timed over a library that answers at once (`tests/support/fake_nvml.py`): what remains is
ours. Last, three hours of eight simulated GPUs are recorded with clocks moved by hand.
"""

from __future__ import annotations

import argparse
import gzip
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from libra_plan.planner.telemetry.monitor import look_until
from libra_plan.planner.telemetry.nvml_source import NvmlSource
from libra_plan.planner.telemetry.recording import SCHEMA_VERSION, Header, Recorder, parts
from libra_plan.planner.telemetry.simulated import SimulatedSource
from libra_plan.planner.telemetry.sources import Clocks

PROGRAM = [sys.executable, "-c", "from libra_plan.cli.app import main; main()"]
START_S = 3.0
GPUS = 8
HOURS = 3
DAY_S = 86400


def share_of_program(source: str, seconds: float, folder: Path) -> tuple[float, float]:
    """Return the share of a core, and the memory in MiB."""
    words = ["monitor", "--source", source, "--format", "none", "--out", str(folder), "--prometheus", "0"]
    with subprocess.Popen([*PROGRAM, *words], stderr=subprocess.DEVNULL) as running:
        try:
            time.sleep(START_S)
            process = psutil.Process(running.pid)
            before, began = process.cpu_times(), time.monotonic()
            time.sleep(seconds)
            after, took = process.cpu_times(), time.monotonic() - began
            memory = process.memory_info().rss / 2**20
        finally:
            running.terminate()
    return (after.user + after.system - before.user - before.system) / took, memory


def seconds_per_look(looks: int) -> float:
    """Time looks at eight GPUs whose driver answers at once, threads and all."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from fake_nvml import FakeGpu, FakeNvml

    library = FakeNvml(*(FakeGpu(index, ComputeRunningProcesses=[]) for index in range(GPUS)))
    source = NvmlSource(library, "node0", Clocks(time.time, time.monotonic))
    source.read()
    began = time.process_time()
    for _ in range(looks):
        source.read()
    took = time.process_time() - began
    source.close()
    return took / looks


def bytes_per_gpu_day(folder: Path) -> tuple[float, float]:
    """Record hours of simulated GPUs; give bytes per GPU and day as written, and as kept."""
    now = [1.7e9]
    clocks = Clocks(lambda: now[0], lambda: now[0])

    def wait(seconds: float) -> bool:
        now[0] += seconds
        return False

    header = Header(
        schema_version=SCHEMA_VERSION,
        node="node0",
        source="simulated",
        run="benchmark",
        began_utc=clocks.stamp(),
        interval_s=1.0,
    )
    recorder = Recorder(folder, header, clocks, print)
    source = SimulatedSource(GPUS, "node0", clocks, random.Random(0))

    def take(samples):
        for sample in samples:
            recorder.write(sample)

    looks = look_until(source, [take], 1.0, HOURS * 3600, wait, clocks)
    recorder.close()
    full = [path for path in parts(folder) if path.suffix == ".gz"]
    plain = sum(len(gzip.decompress(path.read_bytes())) for path in full)
    packed = sum(path.stat().st_size for path in full)
    last = sum(path.stat().st_size for path in parts(folder) if path.suffix != ".gz")
    per_day = (plain + last) / looks / GPUS * DAY_S
    return per_day, per_day * packed / plain


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--source", default=f"simulated:{GPUS}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        share, memory = share_of_program(asked.source, asked.seconds, Path(folder) / "share")
        print(
            f"monitor --source {asked.source}, recording and metrics on, 1 look/s over {asked.seconds:g} s: "
            f"{share:.2%} of a core, {memory:.0f} MiB"
        )
        each = seconds_per_look(500)
        print(f"NVML reader over {GPUS} GPUs that answer at once: {each * 1000:.2f} ms of CPU a look")
        written, kept = bytes_per_gpu_day(Path(folder) / "size")
        print(
            f"recording at 1 look/s: {written / 1e6:.1f} MB per GPU-day as written, "
            f"{kept / 1e6:.1f} MB compressed"
        )
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
