"""What nvidia-smi writes, and what it writes instead."""

from __future__ import annotations

import sys

import pytest
from fake_nvml import Hands
from telemetry_cases import DATA, clocks_of

from libra_plan.planner.telemetry import smi
from libra_plan.planner.telemetry.sample import READINGS, GpuState
from libra_plan.planner.telemetry.smi import SmiError, SmiSource, cell_text, parse_gpus, parse_processes
from libra_plan.planner.telemetry.sources import SourceTimeouts

FIELDS = list(smi._GPU_FIELDS)
LIMITS = SourceTimeouts(look_s=30.0, start_s=30.0)


def gpus(name):
    return parse_gpus((DATA / name).read_text(encoding="utf-8"), FIELDS)


def source(run, hands=None, limits=LIMITS):
    return SmiSource("node0", clocks_of(hands or Hands()), limits, run)


def test_a_well_machine_is_read_whole():
    """0 % and 0 MiB are readings, not gaps."""
    first, second = gpus("smi_well.csv")
    assert (first.uuid, first.index, first.name) == ("GPU-aaaa", 0, "NVIDIA H200")
    assert (first.utilization_percent, first.memory_used_mib, first.power_w) == (97, 101024, 652.31)
    assert (second.utilization_percent, second.memory_used_mib) == (0, 0)
    assert (second.details.mig, second.details.ecc_uncorrected) == (False, 0)


@pytest.mark.parametrize(
    "cell",
    [
        "[N/A]",
        "[Not Supported]",
        "[Insufficient Permissions]",
        "[Unknown Error]",
        "N/A",
        "ERR!",
        "",
        " [N/A] ",
    ],
)
def test_any_bracketed_value_is_unknown(cell):
    """A046: `int('[Insufficient')` ended a program; a bracket means that there is no value."""
    assert cell_text(cell) is None
    (gpu,) = parse_gpus(f"GPU-a, 0, X, {cell}, 44", FIELDS[:5])
    assert (gpu.utilization_percent, gpu.memory_busy_percent) == (None, 44)


def test_memory_that_is_not_told_is_unknown():
    """A039: on GB10 memory is [N/A]."""
    (gpu,) = gpus("smi_na.csv")
    assert (gpu.state, gpu.memory_total_mib, gpu.memory_used_mib) == (GpuState.OK, None, None)
    assert gpu.details.mig is None


def test_memory_that_may_not_be_seen_is_unknown():
    """A046: the text holds a space; a MIG parent in a container."""
    (gpu,) = gpus("smi_permission.csv")
    assert (gpu.memory_total_mib, gpu.memory_used_mib, gpu.utilization_percent) == (81920, None, None)
    assert gpu.details.mig is True


def test_a_gpu_in_need_of_a_reset_loses_only_its_own_readings():
    """A048: the rows around it, and around a row that is a message, stay."""
    first, second, last = gpus("smi_errors.csv")
    assert [each.state.value for each in (first, second, last)] == ["ok", "unreadable", "ok"]
    assert all(getattr(second, name) is None for name in READINGS)
    assert (last.index, last.power_w, last.temperature_c, last.utilization_percent) == (3, None, None, 55)


def test_processes_are_put_to_their_gpus():
    """Memory of a process may be [N/A]; a line that is no process is none."""
    found = parse_processes("GPU-a, 99000001, 512\nGPU-a, 99000002, [N/A]\nNo running processes found\n")
    assert {uuid: [(p.pid, p.used_mib) for p in held] for uuid, held in found.items()} == {
        "GPU-a": [(99000001, 512), (99000002, None)]
    }


def test_a_field_an_old_nvidia_smi_does_not_know_is_left_out():
    """Drivers before 510 know no memory.reserved; everything else they tell."""
    asked = []

    def run(words):
        asked.append(words[0])
        if "compute-apps" in words[0]:
            return ""
        if "memory.reserved" in words[0]:
            raise SmiError('Field "memory.reserved" is not a valid field to query.')
        row = (DATA / "smi_well.csv").read_text(encoding="utf-8").splitlines()[0].split(", ")
        return ", ".join(row[:8] + row[9:]) + "\n"

    made = source(run)
    for _ in range(2):
        (sample,) = made.read()
        (gpu,) = sample.gpus
        assert (gpu.memory_used_mib, gpu.memory_reserved_mib, gpu.power_w) == (101024, None, 652.31)
    assert sum("memory.reserved" in each for each in asked) == 1
    made.close()


def test_a_failing_nvidia_smi_keeps_its_gpus_listed_without_readings():
    """A041: `Driver/library version mismatch` while jobs run; nothing is idle, nothing is gone."""
    hands, texts = Hands(), [(DATA / "smi_well.csv").read_text(encoding="utf-8"), "GPU-aaaa, 99000001, 512"]

    def run(words):
        if not texts:
            raise SmiError("Failed to initialize NVML: Driver/library version mismatch")
        return texts.pop(0)

    made = source(run, hands)
    (sample,) = made.read()
    assert [len(gpu.details.processes) for gpu in sample.gpus] == [1, 0]
    hands.pass_s(9)
    (sample,) = made.read()
    assert "version mismatch" in sample.faults[0]
    assert [(gpu.uuid, gpu.state.value, gpu.age_s) for gpu in sample.gpus] == [
        ("GPU-aaaa", "unreadable", 9),
        ("GPU-bbbb", "unreadable", 9),
    ]
    assert all(gpu.utilization_percent is None for gpu in sample.gpus)
    assert sample.host is not None
    made.close()


def test_a_gpu_that_is_no_longer_listed_is_lost():
    """A048: nvidia-smi simply leaves it out."""
    rows = (DATA / "smi_well.csv").read_text(encoding="utf-8").splitlines()
    texts = ["\n".join(rows), "", rows[0], ""]
    made = source(lambda words: texts.pop(0))
    made.read()
    (sample,) = made.read()
    assert [(gpu.uuid, gpu.state.value) for gpu in sample.gpus] == [("GPU-aaaa", "ok"), ("GPU-bbbb", "lost")]
    made.close()


def program(folder, monkeypatch, text):
    path = folder / "nvidia-smi"
    path.write_text(f"#!{sys.executable}\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_real_program_is_run_and_its_words_are_kept(tmp_path, monkeypatch):
    """What it says on failing is the only clue there is."""
    program(tmp_path, monkeypatch, "import sys; print(sys.argv[1]); sys.exit(int('fail' in sys.argv[1]))")
    assert smi.run_smi(["--query"]) == "--query\n"
    with pytest.raises(SmiError, match="--fail"):
        smi.run_smi(["--fail"])


def test_a_program_that_hangs_is_killed_and_said(tmp_path, monkeypatch):
    """A047: nvidia-smi hangs with the driver."""
    program(tmp_path, monkeypatch, "import time; time.sleep(60)")
    monkeypatch.setattr(smi, "_LIMIT_S", 0.2)
    with pytest.raises(SmiError, match="does not answer"):
        smi.run_smi(["--query"])


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf", "1e999", "1e300"])
def test_what_is_no_finite_number_is_unknown(cell):
    """A driver that just came back prints such, and none of it is a reading or a count."""
    fields = ("uuid", "index", "power.draw", "ecc.errors.corrected.volatile.total")
    (gpu,) = parse_gpus(f"GPU-1, {cell}, {cell}, {cell}", fields)
    assert (gpu.index, gpu.power_w) == (None, None)
    assert (
        parse_processes(f"GPU-1, \N{SUPERSCRIPT TWO}, 5\nGPU-1, 2147483647, {cell}")["GPU-1"][0].used_mib
        is None
    )
