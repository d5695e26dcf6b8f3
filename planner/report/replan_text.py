"""What the re-plan loop decided, as text and as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from libra_plan.planner.controller.events import told
from libra_plan.planner.report.text_table import PLAIN, Page, table_text

if TYPE_CHECKING:
    from libra_plan.planner.controller.history import Explained, Replays
    from libra_plan.planner.controller.job_queue import TaskQueue
    from libra_plan.planner.controller.replan import Replanned
    from libra_plan.planner.controller.state import Decision, Move
    from libra_plan.planner.controller.store import LookRow

__all__ = [
    "explained_data",
    "explained_text",
    "history_data",
    "history_text",
    "look_data",
    "look_text",
    "passed_over_text",
    "queue_data",
    "queue_text",
    "replay_data",
    "replay_text",
]

_COLUMNS = ("look", "at (UTC)", "decision", "rule", "gain", "net, at least", "outcome")


def _utc(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _decision_data(decision: Decision) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(decision, str_keys=True)
    del data["plan"]  # the manifest has it
    return data


# ---------------------------------------------------------------- one look


def look_data(done: Replanned) -> dict[str, Any]:
    """Return a look that was just taken as plain data."""
    more = {"look": done.number, "outcome": done.outcome, "generation": done.generation}
    return {**more, **_decision_data(done.decision)}


def look_text(done: Replanned) -> str:
    """Return a look that was just taken as lines."""
    decision = done.decision
    lines = [f"look {done.number}: {decision.rung.value} [{decision.rule}] {decision.why}"]
    for move in decision.moves:
        gpus = f"{move.gpus_before} → {move.gpus_after} GPUs {move.after}".rstrip()
        figures = f"{move.worth:+.4g}, doubt {move.doubt:.4g}, switch {move.switch_s:.3g} s"
        lines.append(f"  {move.task}: {move.action}, {gpus} ({figures})")
    for step in decision.batch_steps:
        lines.append(f"  {step.task}/{step.role}: {step.setting} {step.before:g} → {step.after:g}")
    lines += [f"  wanted first: {order}" for order in decision.orders]
    lines += [f"  {note}" for note in decision.notes]
    if done.outcome == "applied":
        lines.append(f"  generation {done.generation} written")
    elif done.outcome == "dry-run":
        lines.append("  dry run: nothing was written")
    return "\n".join(lines)


# ---------------------------------------------------------------- the record


def history_data(rows: Iterable[LookRow]) -> list[dict[str, Any]]:
    """Return recorded looks as plain data."""
    return [{**asdict(row), "at": _utc(row.wall_s)} for row in rows]


def history_text(rows: Sequence[LookRow], page: Page = PLAIN) -> str:
    """Return recorded looks as a table."""
    cells = [
        [
            str(row.id),
            _utc(row.wall_s),
            row.rung,
            row.rule,
            *("" if value is None else f"{value:+.4g}" for value in (row.gain, row.net)),
            row.outcome,
        ]
        for row in rows
    ]
    return table_text(_COLUMNS, cells, (0, 4, 5), page)


def explained_data(found: Explained) -> dict[str, Any]:
    """Return the whole record of a look as plain data."""
    outcomes = [asdict(each) for each in found.outcomes]
    return {
        "look": asdict(found.look),
        "decision": _decision_data(found.decision),
        "came_of_it": outcomes,
    }


def explained_text(found: Explained) -> str:
    """Return the whole record of a look as lines."""
    row, decision = found.look, found.decision
    lines = [
        f"look {row.id}, {_utc(row.wall_s)}: {decision.rung.value} [{decision.rule}], {row.outcome}",
        decision.why,
    ]
    figures = {
        "running": decision.running,
        "no change above": decision.bound,
        "gain": row.gain,
        "net at least": row.net,
        "switch cost": row.cost,
        "horizon s": decision.horizon_s,
    }
    known = [f"{name} {value:.6g}" for name, value in figures.items() if value is not None]
    if known:
        lines.append(", ".join(known) + " (weighted fair shares)")
    lines += [f"event: {told(event)}" for event in decision.events]
    for each in decision.considered:
        lines.append(f"considered {each.rung.value}: net {each.net:+.4g}, {each.verdict}")
        lines += _move_lines(each.moves)
    if decision.moves:
        lines += ["decided:", *_move_lines(decision.moves)]
    lines += [f"wanted first: {order}" for order in decision.orders]
    lines += decision.notes
    for one in found.outcomes:
        lines.append(
            f"came of it: {one.task}/{one.role} {one.predicted_s:.4g} s predicted, {one.realised_s:.4g} s "
            f"seen at look {one.seen_at_look} ({one.realised_s / one.predicted_s - 1:+.1%})"
        )
    return "\n".join(lines)


def _move_lines(moves: Iterable[Move]) -> Iterator[str]:
    for move in moves:
        yield (
            f"  {move.task}: {move.action} {move.gpus_before} → {move.gpus_after} GPUs {move.after}: worth "
            f"{move.worth:+.4g}, doubt {move.doubt:.4g}, switch {move.switch_s:.3g} s ({move.cost:.4g})"
        )


def replay_data(found: Replays, seconds: float) -> dict[str, Any]:
    """Return looks that were derived again as plain data."""
    otherwise = [
        {
            "look": each.look.id,
            "was": each.look.rung,
            "rule": each.look.rule,
            "is": each.decision.rung.value,
            "now_rule": each.decision.rule,
            "why": each.decision.why,
        }
        for each in found.otherwise
    ]
    return {
        "looks": len(found.looks),
        "seconds": seconds,
        "passed_over": found.passed_over,
        "otherwise": otherwise,
    }


def replay_text(found: Replays, *, other_policy: bool) -> str:
    """Return how many looks were derived again, and which of them came out differently."""
    what = "the same kind of change" if other_policy else "as recorded, bit for bit"
    same = len(found.looks) - len(found.otherwise)
    lines = [f"{len(found.looks)} looks derived again, {same} {what}"]
    for each in found.otherwise:
        now = f"{each.decision.rung.value} [{each.decision.rule}]"
        lines.append(f"look {each.look.id}: {each.look.rung} [{each.look.rule}] → {now} {each.decision.why}")
    return "\n".join(lines)


def passed_over_text(found: Replays) -> str:
    """Return a sentence that lists the looks that were skipped."""
    first, last = found.passed_over[0], found.passed_over[-1]
    looks = f"look {first}" if first == last else f"looks {first} to {last}"
    return f"passed over: {looks}, before the first of which the state was kept"


# ---------------------------------------------------------------- the queue


def queue_data(queue: TaskQueue) -> dict[str, Any]:
    """Return the queue of tasks as plain data."""
    return {"asked": [asdict(request) for request in queue.asked], "waits_s": queue.waits_s}


def queue_text(queue: TaskQueue) -> str:
    """Return the queue of tasks as lines."""
    lines = []
    for request in queue.asked:
        line = f"{request.id} {request.state}"
        line += "" if request.weight is None else f" weight {request.weight:g}"
        line += "" if request.tier is None else f" tier {request.tier:g}"
        lines.append(f"{line}: {request.reason}" if request.reason else line)
    lines += [f"{task} has waited {seconds:.0f} s" for task, seconds in sorted(queue.waits_s.items())]
    return "\n".join(lines)
