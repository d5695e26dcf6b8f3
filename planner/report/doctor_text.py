"""A diagnosis as text: a table of the findings, each of them in full, and what could not be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libra_plan.planner.report.text_table import table_text

if TYPE_CHECKING:
    from libra_plan.planner.doctor import Diagnosis, Finding

__all__ = ["diagnosis_text"]


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Return the diagnosis for people."""
    parts = ["nothing found"]
    if diagnosis.findings:
        rows = [
            [str(number), each.level.value, each.code, each.title, _factor(each)]
            for number, each in enumerate(diagnosis.findings, start=1)
        ]
        parts = [table_text(["", "level", "code", "what", "gain"], rows, right=(0,))]
    for number, each in enumerate(diagnosis.findings, start=1):
        parts.append(f"\n{number} [{each.code}] {each.title}")
        lines = {"when": _when(each), "seen": each.evidence, "cause": each.cause, "do": each.advice}
        parts += [f"  {name.ljust(5)}  {text}" for name, text in (lines | {"gain": each.gain.text}).items()]
    by_lack: dict[str, list[str]] = {}
    for unseen in diagnosis.unseen:
        for lack in unseen.lacks:
            by_lack.setdefault(lack, []).append(unseen.code)
    if by_lack:
        parts.append("\nnot looked for, since the recordings lack")
        parts += [f"  {lack}: {', '.join(codes)}" for lack, codes in by_lack.items()]
    return "\n".join(parts)


def _factor(finding: Finding) -> str:
    gain = finding.gain
    return "?" if gain.factor is None else f"{'≤' if gain.kind == 'bound' else '≈'} × {gain.factor:.2f}"


def _when(finding: Finding) -> str:
    from libra_plan.planner.doctor.diagnose import utc_text
    from libra_plan.planner.doctor.finding import duration

    length = duration(finding.ended_s - finding.began_s)
    began, ended = utc_text(finding.began_s), utc_text(finding.ended_s)
    if began is None or ended is None:
        return f"{finding.began_s:.0f} to {finding.ended_s:.0f} s of the log ({length})"
    return f"{began} to {ended} ({length})"
