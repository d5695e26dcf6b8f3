"""Compare `libra-plan monitor` with nvidia-smi beside a running load, on a machine with NVIDIA GPUs.

    python benchmarks/monitor_gpu.py --out FOLDER [--seconds 40]

Both look once a second. The load multiplies matrices with PyTorch on every GPU during the middle
half of the time. Every look of nvidia-smi is compared with the monitor's nearest one; the driver
averages utilization and power over about a second, so looks half a second apart differ where the
load begins and ends. FOLDER takes the recording, nvidia-smi's CSV and what is printed.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from libra_plan.planner.telemetry.nvml import load_library
from libra_plan.planner.telemetry.nvml_source import NvmlSource
from libra_plan.planner.telemetry.recording import RecordingReader
from libra_plan.planner.telemetry.sources import Clocks, SourceTimeouts

MONITOR = [sys.executable, "-c", "from libra_plan.cli.app import main; main()", "monitor", "--source", "nvml"]
FIELDS = {
    "utilization.gpu": "utilization_percent",
    "utilization.memory": "memory_busy_percent",
    "memory.total": "memory_total_mib",
    "memory.used": "memory_used_mib",
    "memory.free": "memory_free_mib",
    "memory.reserved": "memory_reserved_mib",
    "power.draw": "power_w",
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "memory_clock_mhz",
    "temperature.gpu": "temperature_c",
}
QUERY = ",".join(["timestamp", "uuid", *FIELDS])
LOAD = """
import sys, time, torch
ends = time.monotonic() + float(sys.argv[1])
held = [[torch.randn(8192, 8192, device=f"cuda:{i}", dtype=torch.bfloat16) for _ in range(3)]
        for i in range(torch.cuda.device_count())]
while time.monotonic() < ends:
    for left, right, out in held:
        for _ in range(20):
            torch.matmul(left, right, out=out)
    torch.cuda.synchronize()
"""
# Move a known number of bytes: from pinned host memory to GPU 0, and from GPU 0 to GPU 1
TRAFFIC = """
import json, sys, time, torch
def move(target, source, seconds):
    began, moved = time.time(), 0
    while time.time() < began + seconds:
        for _ in range(8):
            target.copy_(source, non_blocking=True)
            moved += source.numel()
        torch.cuda.synchronize()
    return {"began": began, "ended": time.time(), "bytes": moved}
size, seconds = 2**30, float(sys.argv[1])
here = torch.empty(size, dtype=torch.uint8, device="cuda:0")
host = torch.empty(size, dtype=torch.uint8).pin_memory()
told = {"pcie_rx_bytes_per_s": move(here, host, seconds)}
if torch.cuda.device_count() > 1:
    there = torch.empty(size, dtype=torch.uint8, device="cuda:1")
    told["nvlink_tx_bytes_per_s"] = move(there, here, seconds)
print(json.dumps(told))
"""
LOOKS = 100
TRAFFIC_S = 6.0


def watch(folder: Path, seconds: float) -> dict[str, object]:
    """Run monitor, nvidia-smi and the load side by side; give the monitor's cost and the processes seen."""
    recording, table = folder / "recording", folder / "nvidia-smi.csv"
    words = ["--for", f"{seconds + 2 * TRAFFIC_S + 10:g}", "--format", "none", "--out", str(recording)]
    with table.open("w", encoding="utf-8") as file:
        monitor = subprocess.Popen([*MONITOR, *words])
        smi = subprocess.Popen(
            ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-l", "1"], stdout=file
        )
        try:
            time.sleep(seconds / 4)
            process = psutil.Process(monitor.pid)
            before, began = process.cpu_times(), time.monotonic()
            load = subprocess.Popen([sys.executable, "-c", LOAD, f"{seconds / 2:g}"])
            time.sleep(seconds / 4)
            apps = subprocess.run(
                [
                    "nvidia-smi",
                    "--query-compute-apps=gpu_uuid,pid,used_memory",
                    "--format=csv,noheader,nounits",
                ],
                capture_output=True,
                text=True,
                check=False,
            ).stdout
            time.sleep(seconds / 4)
            after, took = process.cpu_times(), time.monotonic() - began
            failed = load.wait() != 0
            moved = subprocess.run(
                [sys.executable, "-c", TRAFFIC, f"{TRAFFIC_S:g}"], capture_output=True, text=True, check=False
            )
            monitor.wait()
        finally:
            smi.terminate()
            smi.wait()
    if failed:
        raise SystemExit("the load failed: is PyTorch with CUDA installed?")
    return {
        "monitor_core_share": (after.user + after.system - before.user - before.system) / took,
        "nvidia_smi_processes": apps.splitlines(),
        "load_pid": load.pid,
        "traffic": traffic(folder, json.loads(moved.stdout)) if moved.stdout else moved.stderr[-300:],
    }


def traffic(folder: Path, moved: dict[str, dict[str, float]]) -> dict[str, dict[str, object]]:
    """Compare what was moved with the rates that the monitor saw in between, on GPU 0."""
    found = {}
    for name, each in moved.items():
        inside = [
            getattr(played.sample.gpus[0], name)
            for played in RecordingReader(folder / "recording")
            if each["began"] + 1.2 < played.sample.taken_utc.timestamp() < each["ended"]
        ]
        rate = each["bytes"] / (each["ended"] - each["began"])
        found[name] = {
            "moved_gb_per_s": round(rate / 1e9, 3),
            "seen_gb_per_s": [_gb(value) for value in inside],
        }
    return found


def _gb(rate: float | None) -> float | None:
    return None if rate is None else round(rate / 1e9, 3)


def raw_counters() -> list[dict[str, object]]:
    """Show the driver's own words on traffic counters of GPU 0: error, type and value."""
    nvml = load_library()
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    asked = [(138, 0xFFFFFFFF), (139, 0xFFFFFFFF), (202, 0), 197, 198]
    told = nvml.nvmlDeviceGetFieldValues(handle, asked)
    rows = [
        {"field": each.fieldId, "error": each.nvmlReturn, "type": each.valueType, "value": each.value.ullVal}
        for each in told
    ]
    try:
        rows.append({"PcieThroughput KiB/s": nvml.nvmlDeviceGetPcieThroughput(handle, 1)})
    except nvml.NVMLError as error:
        rows.append({"PcieThroughput": str(error)})
    nvml.nvmlShutdown()
    return rows


def compare(folder: Path) -> list[dict[str, object]]:
    """Compare each look of nvidia-smi with the nearest of the monitor."""
    ours: dict[str, list[tuple[float, object]]] = {}
    for played in RecordingReader(folder / "recording"):
        for gpu in played.sample.gpus:
            at_s = played.sample.taken_utc.timestamp() - (gpu.age_s or 0.0)
            ours.setdefault(gpu.uuid or "?", []).append((at_s, gpu))
    pairs: dict[str, list[tuple[float, float]]] = {}
    unknown = dict.fromkeys(FIELDS.values(), 0)
    with (folder / "nvidia-smi.csv").open(encoding="utf-8") as file:
        for row in csv.reader(file, skipinitialspace=True):
            if len(row) != len(FIELDS) + 2:
                continue
            at_s = datetime.datetime.strptime(row[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
            near_s, gpu = min(ours[row[1]], key=lambda each: abs(each[0] - at_s))
            if abs(near_s - at_s) > 0.75:
                continue
            for cell, name in zip(row[2:], FIELDS.values(), strict=True):
                mine = getattr(gpu, name)
                if cell.startswith("[") or mine is None:
                    unknown[name] += cell.startswith("[") != (mine is None)
                else:
                    pairs.setdefault(name, []).append((mine, float(cell)))
    return [_compared(name, pairs.get(name, []), unknown[name]) for name in FIELDS.values()]


def _compared(name: str, both: list[tuple[float, float]], one_only: int) -> dict[str, object]:
    if not both:
        return {"reading": name, "looks": 0, "known_to_one_only": one_only}
    apart = [abs(mine - theirs) for mine, theirs in both]
    return {
        "reading": name,
        "looks": len(both),
        "monitor_mean": round(statistics.fmean(mine for mine, _ in both), 2),
        "nvidia_smi_mean": round(statistics.fmean(theirs for _, theirs in both), 2),
        "median_apart": round(statistics.median(apart), 3),
        "most_apart": round(max(apart), 2),
        "known_to_one_only": one_only,
    }


def cost_of_looks() -> dict[str, object]:
    """Time looks through the real NVML in this process: CPU and wall, for as many GPUs as there are."""
    source = NvmlSource(
        load_library(), "node0", Clocks(time.time, time.monotonic), SourceTimeouts(look_s=5.0)
    )
    (first,) = source.read()
    source.read()
    cpu, wall = time.process_time(), time.monotonic()
    for _ in range(LOOKS):
        source.read()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    source.close()
    gpus = len(first.gpus)
    return {
        "gpus": gpus,
        "cpu_ms_per_look": round(cpu / LOOKS * 1000, 3),
        "wall_ms_per_look": round(wall / LOOKS * 1000, 3),
        "core_share_of_8_gpus_at_1_look_per_s": round(cpu / LOOKS * 8 / gpus, 5),
        "unknown": {} if first.gpus[0].details is None else first.gpus[0].details.unknown,
    }


def attempt(read: Callable[[], object]) -> object:
    """Return a reading, or the error it fails with, so that the rest of the run is kept."""
    try:
        return read()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=40.0)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, object] = {
        "cost": cost_of_looks(),
        "counters": attempt(raw_counters),
        **watch(asked.out, asked.seconds),
    }
    rows = found["readings"] = compare(asked.out)
    seen = {
        (process.pid, process.name, process.used_mib)
        for played in RecordingReader(asked.out / "recording")
        for gpu in played.sample.gpus
        for process in (gpu.details and gpu.details.processes) or ()
    }
    found["monitor_processes"] = sorted(map(str, seen))
    found["host"] = {"cores": os.cpu_count(), "python": sys.version.split()[0]}
    (asked.out / "compared.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    for row in rows:
        print("  ".join(f"{name}={value}" for name, value in row.items()))
    print(json.dumps({key: found[key] for key in found if key != "readings"}, indent=1))


if __name__ == "__main__":
    main()
