"""Reads GPUs from nvidia-smi where NVML cannot be loaded; no other module here starts a process."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from libra_plan.planner.telemetry.host import HostReader, name_process
from libra_plan.planner.telemetry.sample import (
    READINGS,
    GpuDetails,
    GpuSample,
    GpuState,
    NodeSample,
    ProcessUse,
)
from libra_plan.planner.telemetry.sources import (
    Clocks,
    LastSeen,
    SourceTimeouts,
    sample_of,
    without_duplicates,
)
from libra_plan.planner.telemetry.timeouts import TimedCalls

__all__ = ["SmiSource", "cell_text", "find_smi", "parse_gpus", "parse_processes", "run_smi"]

_GPU_FIELDS = {  # names of nvidia-smi: names of ours, in the same units with `nounits`
    "uuid": "uuid",
    "index": "index",
    "name": "name",
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
    "mig.mode.current": "mig",
    "ecc.errors.corrected.volatile.total": "ecc_corrected",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected",
    "enforced.power.limit": "power_limit_w",
}
_PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory")
_FORMAT = "--format=csv,noheader,nounits"
_NO_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
_NO_VALUE = {"", "n/a", "err!", "unknown error"}
_MOST = 1e15  # beyond it nothing is a reading, nor a count
_LIMIT_S = 10.0  # a driver that is not kept loaded takes seconds to start

Run = Callable[[Sequence[str]], str]


class SmiError(Exception):
    """What nvidia-smi printed instead of an answer."""


def find_smi() -> str | None:
    """Return the path of nvidia-smi, None where there is none."""
    return shutil.which("nvidia-smi")


def run_smi(words: Sequence[str]) -> str:
    """Run nvidia-smi and return its output; one that hangs is killed."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SmiError(f"nvidia-smi does not answer within {_LIMIT_S:g} s") from None
    if done.returncode != 0:
        raise SmiError(" ".join(done.stdout.split()) or f"nvidia-smi ended with {done.returncode}")
    return done.stdout


def cell_text(cell: str) -> str | None:
    """Return the value of a cell; anything in brackets, as `[Insufficient Permissions]`, is unknown."""
    text = cell.strip()
    return None if text.lower() in _NO_VALUE or text.startswith("[") else text


def _number(cell: str | None) -> float | None:
    text = cell_text(cell or "")
    try:
        number = math.nan if text is None else float(text)
    except ValueError:
        return None
    return number if abs(number) < _MOST else None


def _whole(cell: str | None) -> int | None:
    number = _number(cell)
    return None if number is None else int(number)


def parse_gpus(text: str, fields: Sequence[str]) -> tuple[GpuSample, ...]:
    """Parse the CSV of GPUs; a row with another number of cells is left out."""
    return tuple(
        _gpu(dict(zip((_GPU_FIELDS[name] for name in fields), row, strict=True)))
        for row in csv.reader(io.StringIO(text), skipinitialspace=True)
        if len(row) == len(fields)
    )


def _gpu(cells: dict[str, str]) -> GpuSample:
    readings = {name: _number(cells[name]) for name in READINGS if name in cells}
    readable = any(value is not None for value in readings.values())
    mig = cell_text(cells.get("mig", ""))
    details = GpuDetails(
        mig=None if mig is None else mig == "Enabled",
        ecc_corrected=_whole(cells.get("ecc_corrected")),
        ecc_uncorrected=_whole(cells.get("ecc_uncorrected")),
        power_limit_w=_number(cells.get("power_limit_w")),
    )
    return GpuSample(
        uuid=cell_text(cells.get("uuid", "")),
        index=_whole(cells.get("index")),
        name=cell_text(cells.get("name", "")),
        state=GpuState.OK if readable else GpuState.UNREADABLE,
        why=None if readable else "nvidia-smi reports nothing about it",
        xids=None,
        details=details if readable else None,
        **readings,
    )


def parse_processes(text: str) -> dict[str, tuple[ProcessUse, ...]]:
    """Parse the CSV of compute processes into processes by GPU."""
    found: dict[str, tuple[ProcessUse, ...]] = {}
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if len(row) == len(_PROCESS_FIELDS) and row[1].strip().isdecimal():
            process = name_process(int(row[1]), _number(row[2]))
            found[row[0].strip()] = (*found.get(row[0].strip(), ()), process)
    return found


class SmiSource:
    """A live source over nvidia-smi: slower, without traffic and XIDs, but it needs nothing else."""

    name = "smi"
    live = True

    def __init__(
        self, node: str, clocks: Clocks, timeouts: SourceTimeouts | None = None, run: Run = run_smi
    ) -> None:
        self._node = node
        self._clocks = clocks
        self._timeouts = timeouts or SourceTimeouts()
        self._run = run
        self._host = HostReader()
        self._calls: TimedCalls[tuple[GpuSample, ...]] = TimedCalls("nvidia-smi", clocks.monotonic_s)
        self._fields = list(_GPU_FIELDS)
        self._seen = LastSeen()
        self._answered = False

    def read(self) -> tuple[NodeSample, ...]:
        """Run nvidia-smi once; when it fails, GPUs seen before stay listed without readings."""
        limit_s = max(self._timeouts.look_s, 2.0) if self._answered else self._timeouts.start_s
        result = self._calls.ask(self._look, limit_s)
        now_s = self._clocks.monotonic_s()
        fault, at_s = None, now_s
        nodes: dict[str, tuple[GpuSample, ...]] = {}
        if result is None:
            fault, state, why = f"nvidia-smi does not answer within {limit_s:g} s", GpuState.LATE, "no answer"
        elif result.value is None:
            fault, state, why = f"nvidia-smi: {result.error}", GpuState.UNREADABLE, "nvidia-smi fails"
        else:
            state, why, at_s = GpuState.LOST, "nvidia-smi no longer lists it", result.at_s
            nodes = {self._node: tuple(_aged(gpu, round(now_s - at_s, 3)) for gpu in result.value)}
            self._answered = True
        listed = self._seen.with_missing(nodes, at_s, now_s, state, why).get(self._node, [])
        host, each = self._host.read(now_s), without_duplicates(listed)
        return (sample_of(self, self._clocks, self._node, now_s, each, host=host, fault=fault),)

    def close(self) -> None:
        """Stop the thread."""
        self._calls.close()

    def _look(self) -> tuple[GpuSample, ...]:
        gpus = parse_gpus(self._query(), self._fields)
        try:
            processes = self._run([f"--query-compute-apps={','.join(_PROCESS_FIELDS)}", _FORMAT])
        except SmiError:
            return gpus
        by_gpu = parse_processes(processes)
        return tuple(
            gpu
            if gpu.details is None
            else replace(gpu, details=replace(gpu.details, processes=by_gpu.get(gpu.uuid or "", ())))
            for gpu in gpus
        )

    def _query(self) -> str:
        """Query every field that this nvidia-smi knows."""
        while True:
            try:
                return self._run([f"--query-gpu={','.join(self._fields)}", _FORMAT])
            except SmiError as error:
                unknown = _NO_FIELD.search(str(error))
                if unknown is None or unknown[1] not in self._fields:
                    raise
                self._fields.remove(unknown[1])


def _aged(gpu: GpuSample, age_s: float) -> GpuSample:
    details = None if gpu.details is None else replace(gpu.details, age_s=age_s)
    return replace(gpu, age_s=age_s if gpu.state is GpuState.OK else None, details=details)
