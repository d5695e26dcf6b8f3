import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from libra_plan.profiles.measure.device import NvmlFacts, cpu_name, read_nvml


class NvmlError(Exception):
    pass


def unsupported(*arguments: object) -> None:
    raise NvmlError("Not Supported")


def nvml(**changes: Any) -> SimpleNamespace:
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlSystemGetDriverVersion": lambda: b"580.1",
        "nvmlDeviceGetName": lambda handle: "NVIDIA H200",
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 700000,
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=2**30, used=2**20),
        "nvmlDeviceGetMigMode": lambda handle: (1, 0),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
            SimpleNamespace(pid=os.getpid()),
            SimpleNamespace(pid=-1),
        ],
    }
    return SimpleNamespace(**(answers | changes))


def test_nvml_is_read_in_our_units() -> None:
    """Watts and MiB, and other processes without our own."""
    assert read_nvml("GPU-1", lambda name: nvml()) == NvmlFacts(
        "NVIDIA H200", "580.1", 700.0, 1024.0, 1.0, True, 1
    )


def test_what_a_gpu_does_not_support_is_unknown_and_nothing_else() -> None:
    """A GeForce has no MIG, a MIG slice no power limit: the rest is still known."""
    library = nvml(nvmlDeviceGetMigMode=unsupported, nvmlDeviceGetPowerManagementLimit=unsupported)
    facts = read_nvml("GPU-1", lambda name: library)
    assert (facts.mig, facts.power_limit_w, facts.memory_total_mib) == (None, None, 1024.0)


def test_without_nvml_everything_is_unknown() -> None:
    """No library and no driver are no reason not to measure."""

    def missing(name: str) -> None:
        raise ImportError(name)

    assert read_nvml("GPU-1", missing) == NvmlFacts()
    assert read_nvml("GPU-1", lambda name: nvml(nvmlInit=unsupported)) == NvmlFacts()
    assert read_nvml(None, lambda name: nvml()) == NvmlFacts(driver="580.1")


def test_the_cpu_is_named(tmp_path: Path) -> None:
    """Launch-bound points depend on it."""
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nmodel name\t: Some CPU @ 2 GHz\n")
    assert cpu_name(path) == "Some CPU @ 2 GHz"
