"""The source a user names, and what stands in for it."""

from __future__ import annotations

import pytest
from fake_nvml import LIBRARY_NOT_FOUND, MISMATCH, FakeGpu, FakeNvml, Hands
from telemetry_cases import clocks_of

from libra_plan.errors import InputError
from libra_plan.planner.telemetry import nvml, smi
from libra_plan.planner.telemetry.dcgm import DcgmSource
from libra_plan.planner.telemetry.nvml_source import NvmlSource
from libra_plan.planner.telemetry.recording import RecordedSource
from libra_plan.planner.telemetry.simulated import SimulatedSource
from libra_plan.planner.telemetry.smi import SmiSource
from libra_plan.planner.telemetry.sources import SourceTimeouts, open_source

LIMITS = SourceTimeouts(look_s=30.0, start_s=30.0)


@pytest.fixture
def choose(monkeypatch):
    """Open a source on a machine with this library and nvidia-smi."""

    def open_on(name, library=None, found=None):
        def load():
            if library is None:
                raise ImportError("no pynvml")
            return library

        monkeypatch.setattr(nvml, "load_library", load)
        monkeypatch.setattr(smi, "find_smi", lambda: found)
        return open_source(name, clocks_of(Hands()), LIMITS)

    return open_on


def test_the_source_is_what_can_be_had(choose, tmp_path):
    """`auto` takes NVML, else nvidia-smi, and says what is missing where there is neither."""
    assert isinstance(choose("auto", FakeNvml(FakeGpu(0)), "/x"), NvmlSource)
    assert isinstance(choose("auto", None, "/x"), SmiSource)
    absent = FakeNvml()
    absent.init_fails = LIBRARY_NOT_FOUND
    assert isinstance(choose("auto", absent, "/x"), SmiSource)
    broken = FakeNvml()
    broken.init_fails = MISMATCH
    assert isinstance(choose("auto", broken, "/x"), NvmlSource)
    for name, library in (("auto", absent), ("nvml", absent), ("smi", broken)):
        with pytest.raises(InputError, match="cannot be read"):
            choose(name, library)
    assert isinstance(choose("simulated:3"), SimulatedSource)
    assert isinstance(choose("http://h:9400/metrics"), DcgmSource)
    (tmp_path / "telemetry-000001.jsonl").write_text("", encoding="utf-8")
    assert isinstance(choose(str(tmp_path)), RecordedSource)
    for wrong in ("nvlm", "simulated:x", "simulated:999999999"):
        with pytest.raises(InputError, match="no such source"):
            choose(wrong)
    with pytest.raises(InputError, match="not a place to get metrics from"):
        choose("ftp://h/metrics")
