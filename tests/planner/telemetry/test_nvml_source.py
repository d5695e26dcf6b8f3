"""Each GPU for itself: what hangs, fails or vanishes takes nothing else along."""

from __future__ import annotations

import itertools
import sys
import time
from types import SimpleNamespace

import pytest
from fake_nvml import (
    LIBRARY_NOT_FOUND,
    MISMATCH,
    NO_PERMISSION,
    NOT_SUPPORTED,
    FakeGpu,
    FakeNvml,
    Hands,
    counter,
    memory,
    no_counter,
)
from telemetry_cases import clocks_of

from libra_plan.errors import InputError
from libra_plan.planner.telemetry import nvml
from libra_plan.planner.telemetry.nvml_source import NvmlSource
from libra_plan.planner.telemetry.sample import READINGS, GpuState
from libra_plan.planner.telemetry.sources import Clocks, SourceTimeouts

LIMITS = SourceTimeouts(look_s=30.0, start_s=30.0, retry_s=30.0, details_s=5.0)
# long enough for GPUs that are well on a busy machine; only what hangs waits for it, and once
SHORT = SourceTimeouts(look_s=1.5, start_s=30.0, retry_s=30.0, details_s=30.0)
REAL = Clocks(time.time, time.monotonic)


@pytest.fixture
def machine():
    """Make a source over made-up GPUs, and let every hung call go at the end."""
    made = []

    def make(*gpus, limits=LIMITS, clocks=None, library=None):
        library = library or FakeNvml(*gpus)
        source = NvmlSource(library, "node0", clocks or REAL, limits)
        made.append((source, library))
        return source, library

    yield make
    for source, library in made:
        library.release.set()
        for each in library.gpus:
            each.release.set()
        source.close()


def look(source):
    (sample,) = source.read()
    return sample


def unknown(gpu):
    return all(getattr(gpu, name) is None for name in READINGS)


def test_every_reading_of_a_well_gpu_is_there_in_our_units(machine):
    """Milliwatts, KiB and bytes must not reach anybody who plans with W and MiB."""
    traffic = [
        itertools.count(0, 1000),
        itertools.count(0, 2000),
        itertools.count(0, 10),
        itertools.count(0, 20),
    ]
    hands = Hands()
    gpu = FakeGpu(0)
    gpu.answers["FieldValues"] = None
    source, _ = machine(gpu, clocks=clocks_of(hands))
    for second in range(2):
        gpu.answers["FieldValues"] = [counter(next(each)) for each in traffic]
        hands.pass_s(second)
        sample = look(source)
    (seen,) = sample.gpus
    assert (seen.uuid, seen.index, seen.name, seen.state) == ("GPU-0000", 0, "NVIDIA H200", GpuState.OK)
    assert (seen.utilization_percent, seen.memory_busy_percent, seen.power_w) == (90, 40, 650.0)
    assert (seen.memory_total_mib, seen.memory_used_mib, seen.memory_reserved_mib) == (143771, 100000, 616)
    assert seen.memory_free_mib == 43155
    assert (seen.sm_clock_mhz, seen.memory_clock_mhz, seen.temperature_c) == (1980, 1980, 55)
    assert (seen.nvlink_tx_bytes_per_s, seen.nvlink_rx_bytes_per_s) == (1000 * 1024, 2000 * 1024)
    assert (seen.pcie_tx_bytes_per_s, seen.pcie_rx_bytes_per_s) == (10, 20)
    assert seen.xids == ()
    assert seen.details.power_limit_w == 700
    assert (seen.details.mig, seen.details.ecc_uncorrected) == (False, 0)
    assert [(each.pid, each.used_mib) for each in seen.details.processes] == [(99_000_000, 512)]
    assert sample.faults == ()
    assert sample.host.memory_total_mib > 0


def test_a_hung_gpu_loses_its_readings_and_no_other_does(machine):
    """A047: the driver hangs on one GPU; its readings are unknown, with age, and the others go on."""
    gpus = [FakeGpu(index) for index in range(3)]
    source, _ = machine(*gpus, limits=SHORT)
    assert [gpu.state for gpu in look(source).gpus] == [GpuState.OK] * 3
    gpus[1].hangs.add("PowerUsage")
    calls = 0
    for _ in range(5):
        sample = look(source)
        assert [gpu.state.value for gpu in sample.gpus] == ["ok", "late", "ok"]
        assert unknown(sample.gpus[1])
        assert sample.gpus[1].age_s > 0
        assert sample.gpus[1].details is None
        calls = calls or gpus[1].calls
    assert gpus[1].calls == calls, "a call that hangs is not made again"
    gpus[1].hangs.clear()
    gpus[1].release.set()
    while source._gpus[1].calls.stuck:
        time.sleep(0.001)
    assert look(source).gpus[1].state is GpuState.OK


def test_details_that_hang_cost_the_load_nothing(machine):
    """A list of processes that takes for ever must not hide what the GPU does in that look."""
    gpu = FakeGpu(0)
    gpu.hangs.add("ComputeRunningProcesses")
    source, _ = machine(gpu, limits=SHORT)
    (seen,) = look(source).gpus
    assert (seen.state, seen.utilization_percent, seen.details) == (GpuState.OK, 90, None)


def test_a_lost_gpu_removes_only_itself_and_can_come_back(machine):
    """A048: XID 79, GPU 3 of 8 falls off the bus; seven stay, and a reset brings the eighth back."""
    gpus = [FakeGpu(index) for index in range(8)]
    source, library = machine(*gpus)
    look(source)
    gpus[3].lost = True
    library.xids.append((SimpleNamespace(answer=lambda name: "GPU-0003"), 79))
    sample = look(source)
    assert [gpu.index for gpu in sample.gpus if gpu.state is GpuState.OK] == [0, 1, 2, 4, 5, 6, 7]
    lost = sample.gpus[3]
    assert (lost.uuid, lost.state, lost.why) == ("GPU-0003", GpuState.LOST, "GPU is lost")
    assert unknown(lost)
    assert lost.xids == (79,)
    gpus[3].lost = False
    assert look(source).gpus[3].state is GpuState.OK


def test_a_gpu_lost_before_the_start_keeps_its_place(machine):
    """Who looks for eight GPUs must see that one of them is missing, not seven."""
    gpus = [FakeGpu(0), FakeGpu(1)]
    gpus[0].lost = True
    source, _ = machine(*gpus)
    sample = look(source)
    assert [(gpu.index, gpu.uuid, gpu.state.value) for gpu in sample.gpus] == [
        (0, None, "lost"),
        (1, "GPU-0001", "ok"),
    ]


def test_mig_has_no_utilization_and_its_instances_have_memory(machine):
    """A042, A043: NVML tells no utilization of MIG, and a container may read the instance, not the parent."""
    gpu = FakeGpu(0, MigMode=[1, 1])
    gpu.fails = {
        "UtilizationRates": NOT_SUPPORTED,
        "MemoryInfo": NO_PERMISSION,
        "MemoryInfo_v2": NO_PERMISSION,
    }
    gpu.instances = [FakeGpu(5, UUID="MIG-a", MemoryInfo=memory(20096, 1000, 96))]
    source, _ = machine(gpu)
    (seen,) = look(source).gpus
    assert (seen.state, seen.utilization_percent, seen.memory_used_mib) == (GpuState.OK, None, None)
    assert seen.details.mig is True
    assert [(each.uuid, each.memory_used_mib) for each in seen.details.instances] == [("MIG-a", 1000)]
    assert seen.details.unknown["utilization"] == "Not Supported"
    assert seen.details.unknown["memory_used_mib"] == "Insufficient Permissions"


def test_unified_memory_is_unknown_and_the_fallback_is_named(machine):
    """A039, A040: on GB10 both definitions of memory are NotSupported; the host's free memory counts."""
    gpu = FakeGpu(0)
    gpu.fails = {"MemoryInfo": NOT_SUPPORTED, "MemoryInfo_v2": NOT_SUPPORTED}
    source, _ = machine(gpu)
    sample = look(source)
    (seen,) = sample.gpus
    assert (seen.state, seen.memory_total_mib, seen.memory_free_mib) == (GpuState.OK, None, None)
    assert "host.memory_free_mib" in seen.why
    assert sample.host.memory_free_mib > 0


def test_free_memory_is_what_the_driver_says_not_total_minus_used(machine):
    """A040: on memory shared with the host used and free do not add up to total."""
    source, _ = machine(FakeGpu(0, MemoryInfo=memory(122547, 6580, 0, free=7630)))
    (seen,) = look(source).gpus
    assert (seen.memory_total_mib, seen.memory_used_mib, seen.memory_free_mib) == (122547, 6580, 7630)


def test_used_memory_has_one_definition(machine):
    """A050: an old driver's used counts its own reserve too: 308 MiB on an idle GPU are used by nobody."""
    gpu = FakeGpu(0, MemoryInfo=memory(143771, 308))
    gpu.fails = {"MemoryInfo_v2": NOT_SUPPORTED}
    source, _ = machine(gpu)
    (seen,) = look(source).gpus
    assert (seen.memory_used_mib, seen.memory_reserved_mib) == (None, None)
    assert (seen.memory_total_mib, seen.memory_free_mib) == (143771, 143463)


def test_one_unsupported_reading_does_not_stop_the_start(machine):
    """A051: on WSL2 memory can be read and utilization cannot."""
    gpu = FakeGpu(0)
    gpu.fails = {"UtilizationRates": NOT_SUPPORTED}
    source, _ = machine(gpu)
    (seen,) = look(source).gpus
    assert (seen.state, seen.utilization_percent, seen.memory_used_mib) == (GpuState.OK, None, 100000)


def test_insufficient_permission_makes_a_reading_unknown(machine):
    """Where processes may not be listed, nobody knows whether there are any."""
    gpu = FakeGpu(0)
    gpu.fails = {"ComputeRunningProcesses": NO_PERMISSION}
    source, _ = machine(gpu)
    (seen,) = look(source).gpus
    assert seen.details.processes is None
    assert seen.details.unknown["processes"] == "Insufficient Permissions"


def test_a_driver_that_fails_at_the_start_degrades_the_monitor_and_is_tried_again(machine):
    """A041: NVML and driver differ after an unattended upgrade; the host is still monitored."""
    hands = Hands()
    library = FakeNvml(FakeGpu(0))
    library.init_fails = MISMATCH
    source, _ = machine(library=library, clocks=clocks_of(hands))
    assert source.absent() is None, "the driver is there"
    sample = look(source)
    assert sample.gpus == ()
    assert "version mismatch" in sample.faults[0]
    assert sample.host is not None
    library.init_fails = None
    assert look(source).gpus == (), "not tried at every look"
    hands.pass_s(LIMITS.retry_s)
    sample = look(source)
    assert (sample.faults, len(sample.gpus)) == ((), 1)


def test_a_driver_that_fails_while_running_leaves_ages_that_grow(machine):
    """A041: the last good sample ages out; nothing says that the GPUs are idle or free."""
    hands = Hands()
    gpu = FakeGpu(0)
    source, _ = machine(gpu, clocks=clocks_of(hands))
    look(source)
    gpu.fails = dict.fromkeys(
        (
            "UtilizationRates",
            "PowerUsage",
            "ClockInfo",
            "Temperature",
            "MemoryInfo",
            "MemoryInfo_v2",
            "FieldValues",
            "PcieThroughput",
        ),
        MISMATCH,
    )
    hands.pass_s(60)
    (seen,) = look(source).gpus
    assert (seen.state, seen.age_s) == (GpuState.UNREADABLE, 60)
    assert "version mismatch" in seen.why
    assert unknown(seen)


def test_a_driver_that_hangs_at_the_start_does_not_hang_the_monitor(machine):
    """The very first call, nvmlInit, may never return."""
    library = FakeNvml(FakeGpu(0))
    library.init_hangs = True
    source, _ = machine(library=library, limits=SourceTimeouts(look_s=0.05, start_s=0.05, retry_s=0.0))
    for _ in range(3):
        sample = look(source)
        assert "does not answer" in sample.faults[0]
    assert library.inits == 1


def test_no_driver_is_told_from_one_that_fails(machine):
    """On a machine without a GPU the user wants to hear it at once."""
    library = FakeNvml()
    library.init_fails = LIBRARY_NOT_FOUND
    source, _ = machine(library=library)
    assert "Not Found" in source.absent()


def test_two_gpus_with_one_uuid_have_no_readings(machine):
    """Whoever joins by UUID would add the load of one to the memory of the other."""
    source, _ = machine(FakeGpu(0, UUID="GPU-x"), FakeGpu(1, UUID="GPU-x"), FakeGpu(2))
    gpus = look(source).gpus
    assert [gpu.state.value for gpu in gpus] == ["duplicate", "duplicate", "ok"]
    assert unknown(gpus[0])
    assert unknown(gpus[1])


def test_a_counter_that_begins_anew_has_no_rate_for_once(machine):
    """A reloaded driver counts from 0: neither a negative rate nor a huge one is true."""
    hands = Hands()
    gpu = FakeGpu(0)
    source, _ = machine(gpu, clocks=clocks_of(hands))
    rates = []
    for value in (10**9, 10**9 + 500, 100, 700):
        gpu.answers["FieldValues"] = [counter(0), counter(0), counter(value), no_counter()]
        rates.append(look(source).gpus[0].pcie_tx_bytes_per_s)
        hands.pass_s(1)
    assert rates == [None, 500, None, 600]


def test_a_counter_of_32_bits_gives_no_rate(machine):
    """At 50 GB/s it wraps a dozen times a second: what two looks differ by means nothing."""
    hands = Hands()
    narrow = SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=5))
    source, _ = machine(FakeGpu(0, FieldValues=[narrow] * 4), clocks=clocks_of(hands))
    for _ in range(3):
        (seen,) = look(source).gpus
        hands.pass_s(1)
    assert (seen.nvlink_tx_bytes_per_s, seen.pcie_tx_bytes_per_s) == (None, None)
    assert "32 bits" in seen.details.unknown["nvlink_tx_bytes_per_s"]


def test_narrow_pcie_counters_are_asked_for_once(machine):
    """Asking an H200 costs CPU at every look, for nothing."""
    hands = Hands()
    wide, narrow = counter(0), SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=5))
    source, library = machine(FakeGpu(0, FieldValues=[wide, wide, narrow, narrow]), clocks=clocks_of(hands))
    asked = []
    whole = library.nvmlDeviceGetFieldValues
    library.nvmlDeviceGetFieldValues = lambda handle, fields: (
        asked.append(len(fields)) or whole(handle, fields)
    )
    for _ in range(3):
        (seen,) = look(source).gpus
        hands.pass_s(1)
    assert asked == [4, 2, 2]
    assert seen.nvlink_tx_bytes_per_s == 0
    assert "32 bits" in seen.details.unknown["pcie_tx_bytes_per_s"]


def test_pcie_without_counters_is_measured_now_and_then(machine):
    """Older GPUs count no bytes; measuring takes 20 ms a direction, so it is not done at every look."""
    hands = Hands()
    gpu = FakeGpu(0, FieldValues=[no_counter()] * 4)
    source, _ = machine(gpu, clocks=clocks_of(hands))
    rates = []
    for _ in range(7):
        rates.append(look(source).gpus[0].pcie_tx_bytes_per_s)
        hands.pass_s(1)
    assert rates == [2048 * 1024, None, None, None, None, 2048 * 1024, None]


def test_an_empty_process_list_on_a_used_gpu_is_kept_apart_from_an_unknown_one(machine):
    """A044: in a container the list is empty while 40 GB are used."""
    source, _ = machine(FakeGpu(0, ComputeRunningProcesses=[], MemoryInfo=memory(81920, 40960)))
    (seen,) = look(source).gpus
    assert seen.details.processes == ()
    assert seen.memory_used_mib == 40960


def test_closing_does_not_wait_for_a_call_that_hangs(machine):
    """Ctrl-C on a machine whose driver hangs must end the program."""
    gpu = FakeGpu(0)
    source, library = machine(gpu, limits=SHORT)
    look(source)
    gpu.hangs.add("PowerUsage")
    look(source)
    source.close()
    assert library.shutdowns == 0, "nvmlShutdown would wait for the driver's lock"
    well, library = machine(FakeGpu(0))
    look(well)
    well.close()
    assert library.shutdowns == 1


def test_the_wrong_module_is_named(monkeypatch):
    """A045: the packages pynvml and nvidia-ml-py3 bring a module of the same name."""
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(__file__="/site/pynvml.py", nvmlInit=None))
    with pytest.raises(InputError, match=r"not the one of nvidia-ml-py.*/site/pynvml.py.*nvidia-ml-py"):
        nvml.load_library()


def test_memory_of_processes_that_the_driver_does_not_tell_is_unknown(machine):
    """Memory per process is not told under some drivers; 0 would say that it holds none."""
    gone = SimpleNamespace(pid=99_000_001, usedGpuMemory=None)
    source, _ = machine(FakeGpu(0, ComputeRunningProcesses=[gone]))
    (process,) = look(source).gpus[0].details.processes
    assert (process.used_mib, process.name, process.started_utc) == (None, None, None)
