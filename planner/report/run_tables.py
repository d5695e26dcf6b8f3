"""Tables of launchers, launches, hand-overs and running roles."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from libra_plan.planner.launchers.base import option_text
from libra_plan.planner.report.text_table import PLAIN, Page, table_text
from libra_plan.profiles.counting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from libra_plan.planner.launchers.emit import LauncherEntry
    from libra_plan.planner.runtime.apply import HandOverReport
    from libra_plan.planner.runtime.launch import LaunchReport
    from libra_plan.planner.runtime.status import StatusReport
    from libra_plan.profiles.switch_costs import SwitchRecord

__all__ = [
    "dry_run_note",
    "hand_over_notes",
    "hand_over_text",
    "launch_text",
    "launchers_text",
    "status_text",
]


def launchers_text(known: Mapping[str, LauncherEntry]) -> str:
    """Return, for each launcher, the versions it was checked against, its abilities and its options."""
    blocks = []
    for name, entry in known.items():
        options = ", ".join(f"{key}={option_text(value)}" for key, value in entry.options.items())
        blocks += [
            name,
            f"  checked against: {', '.join(entry.versions)}",
            f"  can express: {', '.join(entry.abilities)}",
            f"  options: {options or 'none'}",
        ]
    return "\n".join(blocks)


def launch_text(report: LaunchReport) -> str:
    """Return the command of every role that a launch would start."""
    lines = (
        f"{agent.task}/{agent.role} on {agent.node}: {shlex.join(agent.argv)}" for agent in report.agents
    )
    return "\n".join(lines)


def hand_over_text(report: HandOverReport, page: Page = PLAIN) -> str:
    """Return the steps of a hand-over with their expected costs, and the times that moves took."""
    rows = []
    for one in report.forecast:
        least = "≥ " if one.origin == "assumed" else ""
        rows.append(
            (
                one.step,
                f"{one.gpus_before} → {one.gpus_after}",
                ", ".join(one.after) or "–",
                "not known" if one.seconds is None else f"{least}{one.seconds:.3g}",
                one.origin or "",
            )
        )
    columns = ("step", "GPUs", "after", "lost s", "origin")
    steps = table_text(columns, rows, (3,), page) if rows else "nothing to do"
    return "\n".join((steps, *map(_cost, report.costs)))


def hand_over_notes(report: HandOverReport) -> Iterator[str]:
    """Yield what a dry run would do, or what runs after a hand-over that succeeded."""
    if report.outcome is None:
        moves = any(step.action != "keep" for step in report.steps)
        yield f"dry run: nothing was touched{'; --yes takes these steps' if moves else ''}"
        if report.ended:
            yield f"warning: {report.ended_text}"
    elif report.outcome == "new" and not report.ended:
        yield f"done: {report.running or 'nothing'} runs on {report.node or 'this host'}"


def _cost(one: SwitchRecord) -> str:
    """Return the time of each part of a move; the slowest role counts."""
    known = {part: getattr(one, f"{part}_s") for part in ("drain", "save", "stop")}
    for part in ("start", "load", "warm_up"):
        seconds = [getattr(role, f"{part}_s") for role in one.roles]
        known[part] = max((each for each in seconds if each is not None), default=None)
    known["lost"] = one.lost_s
    parts = [f"{part.replace('_', '-')} {value:.3g} s" for part, value in known.items() if value is not None]
    return f"{one.action}:{one.task} took: {', '.join(parts) or 'not known'}"


def status_text(report: StatusReport, page: Page = PLAIN) -> str:
    """Return the roles that should run with their processes, and every difference."""
    return "\n".join((*_running(report, page), *map(str, report.differences)))


def _running(report: StatusReport, page: Page) -> Iterator[str]:
    if report.foreground is not None:
        yield f"a foreground launch is at work (pid {report.foreground}); Ctrl-C there stops it"
    elif report.generation is None and report.stopped_at is not None:
        yield f"nothing runs: stopped at {report.stopped_at}"
    elif report.generation is None:
        yield "nothing was started here"
    else:
        rows = [
            (
                f"{one.task}/{one.role}",
                str(one.generation),
                " ".join(one.gpus) or "CPU",
                "–" if one.pid is None else str(one.pid),
            )
            for one in report.roles
        ]
        yield table_text(("role", "generation", "GPUs", "pid"), rows, (1, 3), page)


def dry_run_note(report: LaunchReport) -> str:
    """Return what a launch would do with --yes."""
    roles = counted(len(report.agents), "role")
    return f"dry run: nothing was started; --yes starts {roles} on {report.node}"
