"""Tasks that are moved so often that moves cost more than they gain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finding import (
    Finding,
    Level,
    Need,
    bound_of,
    duration,
    finder,
    finding,
    unknown,
)
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import MovedTask, Spell

__all__ = ["thrash"]


@finder("thrash", Need.MOVES)
def thrash(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find tasks with many moves within an hour, or with much of their time lost in moves."""
    span = evidence.span_s
    by_task: dict[str, list[MovedTask]] = {}
    for move in evidence.moves or ():
        # the first start and the last stop of a task are no moves; what is not recorded is not judged
        inside = span is None or span[0] - limits.moves_s <= move.at_s <= span[1] + limits.moves_s
        if move.action in ("move", "resize") and inside:
            by_task.setdefault(move.task, []).append(move)
    for task, moves in sorted(by_task.items()):
        moves.sort(key=lambda move: move.at_s)
        densest = _densest(moves, limits.moves_s)
        seconds = max(moves[-1].at_s - moves[0].at_s, 0.0 if span is None else span[1] - span[0])
        lost = [move.lost_s for move in moves if move.lost_s is not None]
        share = sum(lost) / seconds if lost and seconds >= limits.seen_s else None
        costly = share is not None and share >= limits.lost_share and len(moves) > 1
        if len(densest) < limits.moves and not costly:
            continue
        undone = sum(
            later.gpus_after == earlier.gpus_before and earlier.gpus_before != earlier.gpus_after
            for earlier, later in pairwise(moves)
        )
        figures = {"moves": float(len(moves)), "most_in_window": float(len(densest)), "undone": float(undone)}
        seen = f"{len(moves)} moves, {len(densest)} of them within {duration(limits.moves_s)}"
        seen += f", {undone} that undid the one before"
        gain = unknown("not known: the moves' costs were not recorded whole")
        if share is not None:
            figures["lost_share"] = share
            seen += f"; {share:.0%} of the time was lost in them"
            gain = bound_of(share, "the time lost in moves")
        yield finding(
            Level.WARNING,
            f"{task} is moved to and fro",
            Spell(densest[0].at_s, densest[-1].at_s),
            seen,
            (
                "plans follow noise, or the expected stay is shorter than a move takes to pay for itself",
                "raise `horizon_s` and the gain a move must bring, correct profiles first (`libra-plan "
                "profile drift`), and let moves cost what they did (`--switch-costs`)",
            ),
            gain,
            figures,
            task=task,
        )


def _densest(moves: Sequence[MovedTask], within_s: float) -> Sequence[MovedTask]:
    """Return the moves in the window of this length that holds most of them."""
    best: Sequence[MovedTask] = moves[:1]
    first = 0
    for last, move in enumerate(moves):
        while move.at_s - moves[first].at_s > within_s:
            first += 1
        if last + 1 - first > len(best):
            best = moves[first : last + 1]
    return best
