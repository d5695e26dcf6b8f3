"""Tables of telemetry: what is unknown is a question mark, never 0."""

from __future__ import annotations

import msgspec
from telemetry_cases import gpu, held_by, sample

from libra_plan.planner.report.telemetry_tables import rate_table, sample_lines, sample_text, summary_text
from libra_plan.planner.telemetry.recording import RecordedSample
from libra_plan.planner.telemetry.sample import GpuState, ProcessUse
from libra_plan.planner.telemetry.summary import node_windows
from libra_plan.planner.telemetry.throughput import Ledger
from libra_plan.planner.telemetry.work_windows import WorkWindow


def test_a_sample_shows_unknown_readings_as_question_marks():
    """0 W on a GPU that does not answer would look idle."""
    late = gpu(1, None, state=GpuState.LATE, why="no answer")
    late = msgspec.structs.replace(late, age_s=7.0, memory_used_mib=None)
    text = sample_text([sample(0.0, gpu(0, 55.0), late)])
    head, _, first, second = text.splitlines()[:4]
    assert head.startswith("2023-11-14T22:13:20.000Z  node0  CPU 10% of 8 cores, memory ?/? GiB")
    assert first.split()[:6] == ["0", "NVIDIA", "H200", "ok", "55", "1.0/140.4"]
    assert "late 7 s: no answer" in second
    assert second.split()[-7:] == ["?/140.4", "?", "?", "?", "?/?", "?/?", "?"]


def test_processes_that_cannot_be_seen_are_told_from_none():
    """A044: in a container the list is empty while memory is used."""
    used = msgspec.structs.replace(gpu(0, details=held_by()), memory_used_mib=40960.0)
    seen = gpu(1, details=held_by(ProcessUse(pid=7, name="python", used_mib=512.0)), xids=(79,))
    text = sample_text([sample(0.0, used, seen)])
    assert "none seen from here" in text
    assert "XID 79; 7 python 0.5 GiB" in text


def test_lines_of_json_are_one_a_sample():
    """Programs read them as they come."""
    lines = sample_lines([sample(0.0, node="a"), sample(0.0, node="b")]).splitlines()
    assert [msgspec.json.decode(line)["node"] for line in lines] == ["a", "b"]


def test_a_summary_has_a_table_a_window_and_says_what_went_wrong():
    """States, XIDs and errors do not fit a column."""
    lost = gpu(0, None, state=GpuState.LOST, xids=(79,))
    played = [
        RecordedSample("r", sample(at_s, each, faults=("driver",)))
        for at_s, each in ((0.0, gpu(0, 40.0)), (1.0, lost))
    ]
    text = summary_text(list(node_windows(played, 60.0)))
    assert text.startswith("node0  2023-11-14T22:13:20Z and 1 s on, 2 samples\nfault: driver\n")
    row = next(line.split() for line in text.splitlines() if "utilization_percent" in line)
    assert row == ["0", "utilization_percent", "40", "40", "40", "40", "40", "1"]
    assert text.endswith("GPU 0: 1 samples lost\nGPU 0: XID 79")


def test_rates_that_were_not_counted_are_question_marks():
    """Nothing counted is not nothing done."""
    ledger = Ledger()
    ledger.add(WorkWindow(start_s=0.0, end_s=10.0, task="t", role="r", tokens=50_000.0, queues={"q": 3.0}))
    row = rate_table(list(ledger.totals())).splitlines()[1]
    assert row.split() == ["t", "r", "1", "0.00278", "5,000", "?", "?", "?", "?", "q", "3", "(≤", "3)"]
