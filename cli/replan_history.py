"""What `history` and `replay` print."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from libra_plan.cli import render
from libra_plan.cli.flags import Form

if TYPE_CHECKING:
    from libra_plan.planner.controller.decision import Move
    from libra_plan.planner.controller.policy import ReplanPolicy
    from libra_plan.planner.controller.state_store import LookRow, StateStore

__all__ = ["print_history", "print_replay", "print_why"]


def _stamp(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def print_history(store: StateStore, newest: int, changes: bool, form: Form) -> None:
    """List looks, newest last."""
    rows = store.looks() if changes else store.looks(newest=newest)
    if changes:
        rows = [row for row in rows if row.outcome != "kept"][-newest:]
    if form is not Form.TABLE:
        render.print_data([{**asdict(row), "at": _stamp(row.wall_s)} for row in rows], form.value)
        return
    cells = [
        [str(row.id), _stamp(row.wall_s), row.rung, row.rule, _share(row.gain), _share(row.net), row.outcome]
        for row in rows
    ]
    render.print_table(
        ["look", "at (UTC)", "decision", "rule", "gain", "net, at least", "outcome"], cells, [0, 4, 5]
    )


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:+.4g}"


def print_why(store: StateStore, number: int, form: Form) -> None:
    """Say everything about one look."""
    from libra_plan.planner.controller.outcomes import outcomes_of

    decision = store.decision(number)
    row = store.looks(first=number)[0]
    came = outcomes_of(store, number)
    if form is not Form.TABLE:
        data = render.as_data(decision)
        data.pop("plan", None)
        outcomes = [asdict(each) for each in came]
        render.print_data({"look": asdict(row), "decision": data, "came_of_it": outcomes}, form.value)
        return
    said = decision
    render.print_text(f"look {number}, {_stamp(row.wall_s)}: {said.rung.value} [{said.rule}], {row.outcome}")
    render.print_text(said.why)
    _print_figures(row, said.running, said.bound, said.horizon_s)
    for event in said.events:
        what = event.task or event.node or ("" if event.gpu is None else str(event.gpu))
        render.print_text(f"event: {event.kind.value} {what} {event.detail}".rstrip())
    for each in said.considered:
        render.print_text(f"considered {each.rung.value}: net {each.net:+.4g}, {each.verdict}")
        _print_moves(each.moves)
    if said.moves:
        render.print_text("decided:")
        _print_moves(said.moves)
    for line in (*(f"wanted first: {order}" for order in said.orders), *said.notes):
        render.print_text(line)
    for one in came:
        render.print_text(
            f"came of it: {one.task}/{one.role} {one.predicted_s:.4g} s predicted, {one.realised_s:.4g} s "
            f"seen at look {one.seen_at_look} ({one.realised_s / one.predicted_s - 1:+.1%})"
        )


def _print_figures(row: LookRow, running: float | None, bound: float | None, horizon_s: float | None) -> None:
    parts = [
        f"{name} {value:.6g}"
        for name, value in (
            ("running", running),
            ("no change above", bound),
            ("gain", row.gain),
            ("net at least", row.net),
            ("switch cost", row.cost),
            ("horizon s", horizon_s),
        )
        if value is not None
    ]
    if parts:
        render.print_text(", ".join(parts) + " (weighted fair shares)")


def _print_moves(moves: tuple[Move, ...]) -> None:
    for move in moves:
        render.print_text(
            f"  {move.task}: {move.action} {move.gpus_before} → {move.gpus_after} GPUs {move.after}: worth "
            f"{move.worth:+.4g}, doubt {move.doubt:.4g}, switch {move.switch_s:.3g} s ({move.cost:.4g})"
        )


def print_replay(store: StateStore, first: int, policy: ReplanPolicy | None, form: Form) -> None:
    """Derive looks again and tell of those that come out otherwise."""
    from libra_plan.planner.controller.replay import replay

    begun = time.monotonic()
    count, others, passed = 0, [], list[int]()
    for each in replay(store, passed, first=first, policy=policy):
        count += 1
        if not each.same:
            others.append(each)
    took_s = time.monotonic() - begun
    if form is not Form.TABLE:
        differs = [
            {"look": o.look.id, "was": o.look.rung, "rule": o.look.rule, "is": o.decision.rung.value,
             "now_rule": o.decision.rule, "why": o.decision.why} for o in others
        ]  # fmt: skip
        data = {"looks": count, "seconds": took_s, "passed_over": passed, "otherwise": differs}
        render.print_data(data, form.value)
    else:
        what = "as recorded, bit for bit" if policy is None else "the same kind of change"
        render.print_text(f"{count} looks derived again, {count - len(others)} {what}")
        for o in others:
            now = f"{o.decision.rung.value} [{o.decision.rule}]"
            render.print_text(f"look {o.look.id}: {o.look.rung} [{o.look.rule}] → {now} {o.decision.why}")
        render.note(f"{count / max(took_s, 1e-9):.0f} looks a second")
    if passed:
        looks = f"look {passed[0]}" if len(passed) == 1 else f"looks {passed[0]} to {passed[-1]}"
        render.note(f"passed over: {looks}, before the first of which the state was kept")
    if others and policy is None:
        raise RuntimeError(f"{len(others)} looks did not come out as recorded, a defect of ours")
