"""Read GPUs from nvidia-smi where NVML cannot be loaded; the one module of telemetry to start a process."""

from __future__ import annotations

import csv
import io
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgspec.structs import replace

from libra_plan.planner.telemetry.host import HostReader
from libra_plan.planner.telemetry.processes import resolve
from libra_plan.planner.telemetry.sample import (
    READINGS,
    GpuDetails,
    GpuSample,
    GpuState,
    ProcessUse,
    Sample,
)
from libra_plan.planner.telemetry.sources import Clocks, Limits, apart, sample_of, without_readings
from libra_plan.planner.telemetry.timeouts import Guard

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
_NO_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')
_NO_VALUE = {"", "n/a", "err!", "unknown error"}
_MOST = 1e15  # beyond it nothing is a reading, nor a count
_KILLED_S = 1.0
_LIMIT_S = 10.0  # a driver that is not kept loaded takes seconds to start

Run = Callable[[Sequence[str]], str]


class SmiError(Exception):
    """What nvidia-smi said instead of an answer."""


@dataclass(frozen=True, slots=True)
class _Found:
    gpus: tuple[GpuSample, ...]
    at_s: float


def find_smi() -> str | None:
    """Give the path of nvidia-smi, None where there is none."""
    return shutil.which("nvidia-smi")


def run_smi(words: Sequence[str]) -> str:
    """Run nvidia-smi and give what it wrote; one that hangs is killed, and left if that does not end it."""
    process = subprocess.Popen(
        ["nvidia-smi", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    try:
        told, _ = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        if process.stdout is not None:
            process.stdout.close()
        with suppress(subprocess.TimeoutExpired):  # stuck in the driver not even that ends it
            process.wait(_KILLED_S)
        raise SmiError(f"nvidia-smi does not answer within {_LIMIT_S:g} s") from None
    if process.returncode != 0:
        raise SmiError(" ".join(told.split()) or f"nvidia-smi ended with {process.returncode}")
    return told


def cell_text(cell: str) -> str | None:
    """Give what a cell says; anything in brackets, as `[Insufficient Permissions]`, says nothing."""
    text = cell.strip()
    return None if text.lower() in _NO_VALUE or text.startswith("[") else text


def _number(cell: str) -> float | None:
    text = cell_text(cell)
    try:
        number = math.nan if text is None else float(text)
    except ValueError:
        return None
    return number if abs(number) < _MOST else None


def parse_gpus(text: str, fields: Sequence[str]) -> tuple[GpuSample, ...]:
    """Turn `--format=csv,noheader,nounits` into GPUs; a row with too few cells is no row."""
    return tuple(
        _gpu(dict(zip((_GPU_FIELDS[name] for name in fields), row, strict=True)))
        for row in csv.reader(io.StringIO(text), skipinitialspace=True)
        if len(row) == len(fields)
    )


def _gpu(cells: dict[str, str]) -> GpuSample:
    readings = {name: _number(cells[name]) for name in READINGS if name in cells}
    why = None
    if all(value is None for value in readings.values()):
        why = "nvidia-smi tells nothing of it"
    index, mig = _number(cells.get("index", "")), cell_text(cells.get("mig", ""))
    ecc = [_number(cells.get(name, "")) for name in ("ecc_corrected", "ecc_uncorrected")]
    details = GpuDetails(
        mig=None if mig is None else mig == "Enabled",
        ecc_corrected=None if ecc[0] is None else int(ecc[0]),
        ecc_uncorrected=None if ecc[1] is None else int(ecc[1]),
        power_limit_w=_number(cells.get("power_limit_w", "")),
    )
    return GpuSample(
        uuid=cell_text(cells.get("uuid", "")),
        index=None if index is None else int(index),
        name=cell_text(cells.get("name", "")),
        state=GpuState.OK if why is None else GpuState.UNREADABLE,
        why=why,
        xids=None,
        details=details if why is None else None,
        **readings,
    )


def parse_processes(text: str) -> dict[str, tuple[ProcessUse, ...]]:
    """Turn the CSV of compute processes into processes by GPU."""
    found: dict[str, tuple[ProcessUse, ...]] = {}
    for row in csv.reader(io.StringIO(text), skipinitialspace=True):
        if len(row) == len(_PROCESS_FIELDS) and row[1].strip().isdecimal():
            used = resolve(int(row[1]), _number(row[2]))
            found[row[0].strip()] = (*found.get(row[0].strip(), ()), used)
    return found


class SmiSource:
    """A live source over nvidia-smi: slower, without traffic and XIDs, but it needs nothing else."""

    name = "smi"
    live = True

    def __init__(self, node: str, clocks: Clocks, limits: Limits | None = None, run: Run = run_smi) -> None:
        self._node = node
        self._clocks = clocks
        self._limits = limits or Limits()
        self._run = run
        self._host = HostReader()
        self._guard: Guard[tuple[GpuSample, ...]] = Guard("nvidia-smi", clocks.monotonic_s)
        self._fields = list(_GPU_FIELDS)
        self._last: _Found | None = None

    def read(self) -> tuple[Sample, ...]:
        """Ask nvidia-smi once; GPUs seen before stay listed, without readings, when it fails."""
        limit_s = self._limits.start_s if self._last is None else max(self._limits.look_s, 2.0)
        answer = self._guard.ask(self._look, limit_s)
        now_s = self._clocks.monotonic_s()
        fault, gpus = None, self._unanswered(now_s)
        if answer is None:
            fault = f"nvidia-smi does not answer within {limit_s:g} s"
        elif answer.value is None:
            fault = f"nvidia-smi: {answer.error}"
            gpus = tuple(without_readings(gpu, GpuState.UNREADABLE, "nvidia-smi fails") for gpu in gpus)
        else:
            gpus = self._with_ages(answer.value, answer.at_s, now_s)
        return (
            sample_of(
                self,
                self._clocks,
                self._node,
                now_s,
                apart(gpus),
                host=self._host.read(now_s),
                fault=fault,
            ),
        )

    def close(self) -> None:
        """Let the thread end."""
        self._guard.close()

    def _look(self) -> tuple[GpuSample, ...]:
        gpus = parse_gpus(self._query(), self._fields)
        try:
            words = f"--query-compute-apps={','.join(_PROCESS_FIELDS)}"
            by_gpu = parse_processes(self._run([words, "--format=csv,noheader,nounits"]))
        except SmiError:
            return gpus
        return tuple(_with_processes(gpu, by_gpu.get(gpu.uuid or "", ())) for gpu in gpus)

    def _query(self) -> str:
        """Query every field that this nvidia-smi knows."""
        while True:
            try:
                return self._run([f"--query-gpu={','.join(self._fields)}", "--format=csv,noheader,nounits"])
            except SmiError as error:
                unknown = _NO_FIELD.search(str(error))
                if unknown is None or unknown[1] not in self._fields:
                    raise
                self._fields.remove(unknown[1])

    def _with_ages(self, gpus: Sequence[GpuSample], at_s: float, now_s: float) -> tuple[GpuSample, ...]:

        age_s = round(now_s - at_s, 3)
        lost = {gpu.uuid: gpu for gpu in ([] if self._last is None else self._last.gpus)}
        for gpu in gpus:
            lost.pop(gpu.uuid, None)
        there = tuple(
            replace(
                gpu,
                age_s=age_s if gpu.state is GpuState.OK else None,
                details=None if gpu.details is None else replace(gpu.details, age_s=age_s),
            )
            for gpu in gpus
        )
        gone = tuple(
            without_readings(gpu, GpuState.LOST, "nvidia-smi no longer lists it") for gpu in lost.values()
        )
        self._last = _Found((*there, *gone), at_s)
        return self._last.gpus

    def _unanswered(self, now_s: float) -> tuple[GpuSample, ...]:

        if self._last is None:
            return ()
        age_s = round(now_s - self._last.at_s, 3)
        return tuple(
            replace(without_readings(gpu, GpuState.LATE, "nvidia-smi does not answer"), age_s=age_s)
            for gpu in self._last.gpus
        )


def _with_processes(gpu: GpuSample, processes: tuple[ProcessUse, ...]) -> GpuSample:

    return gpu if gpu.details is None else replace(gpu, details=replace(gpu.details, processes=processes))
