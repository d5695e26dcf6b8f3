"""Single calls to NVML: an error makes one reading unknown, and the library is the right one."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from fake_nvml import LIBRARY_NOT_FOUND, NO_PERMISSION, NOT_SUPPORTED, FakeGpu, FakeNvml, memory

from libra_plan.errors import InputError
from libra_plan.planner.telemetry import nvml


@pytest.fixture
def library(monkeypatch):
    """Put a machine in the place of pynvml."""

    def install(*gpus):
        made = FakeNvml(*gpus)
        monkeypatch.setattr(nvml, "load_library", lambda: made)
        return made

    return install


def test_cards_have_what_the_driver_reports(library):
    """Launching compares used memory and processes with what a plan expects."""
    made = library(FakeGpu(0, MemoryInfo=memory(143771, 1000, 616)), FakeGpu(1, MigMode=[1, 1]))
    first, second = nvml.read_cards()
    assert (first.index, first.uuid, first.name) == (0, "GPU-0000", "NVIDIA H200")
    assert (first.memory_mib, first.used_mib, first.processes, first.mig) == (
        143771,
        1000,
        (99_000_000,),
        False,
    )
    assert second.mig is True
    assert made.shutdowns == 1


def test_what_a_card_does_not_report_is_unknown(library):
    """Unknown is None: neither free nor full."""
    gpu = FakeGpu(0)
    gpu.fails = {
        "MemoryInfo_v2": NOT_SUPPORTED,
        "MemoryInfo": NOT_SUPPORTED,
        "ComputeRunningProcesses": NO_PERMISSION,
        "MigMode": NOT_SUPPORTED,
    }
    library(gpu)
    (card,) = nvml.read_cards()
    assert (card.memory_mib, card.used_mib, card.processes, card.mig) == (None, None, None, None)


def test_a_machine_without_a_driver_is_refused_with_a_way_out(library):
    """The user can name a cluster instead."""
    library().init_fails = LIBRARY_NOT_FOUND
    with pytest.raises(InputError, match="cannot be read") as caught:
        nvml.read_cards()
    assert "--cluster FILE" in caught.value.way_out


def test_the_wrong_module_is_named(monkeypatch):
    """A045: the packages pynvml and nvidia-ml-py3 bring a module of the same name."""
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(__file__="/site/pynvml.py", nvmlInit=None))
    with pytest.raises(InputError, match=r"not the one of nvidia-ml-py.*/site/pynvml.py.*nvidia-ml-py"):
        nvml.load_library()


def test_a_gpu_is_opened_by_its_uuid_where_that_is_known():
    """Indices change when a GPU is gone: index 0 may be another GPU by now."""
    made = FakeNvml(FakeGpu(0), FakeGpu(1))
    assert nvml.open_device(made, 0, "GPU-0001").uuid == "GPU-0001"
    assert nvml.open_device(made, 0).uuid == "GPU-0000"
