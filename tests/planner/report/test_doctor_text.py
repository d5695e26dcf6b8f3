"""A diagnosis as people read it."""

from __future__ import annotations

from doctor_cases import look, work

from libra_plan.planner.report.doctor_text import diagnosis_text


def test_each_finding_is_in_the_table_and_in_full():
    """Evidence, cause, advice and gain, with a date where the recording has one."""
    diagnosis = look([], [*work("actor", 1200, waiting_s=4.0), *work("rollout", 1200, waiting_s=0.0)])
    lines = diagnosis_text(diagnosis).splitlines()
    assert lines[1].split()[:3] == ["1", "warning", "rollout-slow"]
    assert lines[1].endswith("≤ × 1.67")
    assert "1 [rollout-slow] t: rollout is slower than training consumes" in lines
    assert [line.split()[0] for line in lines[2:] if line.startswith("  ")][:5] == [
        "when",
        "seen",
        "cause",
        "do",
        "gain",
    ]
    assert any("2023-11-14T22:13:00Z to 2023-11-14T22:34:00Z (21 min)" in line for line in lines)


def test_nothing_found_and_what_could_not_be_looked_for_are_both_said():
    """Silence about GPUs nobody recorded is not health."""
    text = diagnosis_text(look([], work("actor", 1200)))
    assert text.startswith("nothing found\n\nnot looked for, since the recordings lack\n")
    assert "utilization of GPUs (`monitor --out`): hang, gpus-idle" in text
