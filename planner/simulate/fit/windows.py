"""From windows of work, of our counters or of somebody's metrics, to stages, decode steps and lengths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from libra_plan.planner.simulate.fit.recorded import DecodeSeen, Placed, Recorded, StageSeen, TaskSeen
from libra_plan.planner.telemetry.work_windows import WorkWindow

__all__ = ["add_step", "add_windows"]

_ROLLOUTS = ("rollout", "generator")
_TRAINERS = ("actor", "trainer", "train")


class _Block:
    """Windows of one rank until at least one step has ended."""

    __slots__ = ("samples", "seconds", "steps", "tokens")

    def __init__(self) -> None:
        self.seconds = self.steps = 0.0
        self.tokens: float | None = None
        self.samples: float | None = None

    def add(self, window: WorkWindow) -> None:
        self.seconds += window.working_s
        self.steps += window.steps or 0.0
        if window.tokens is not None:
            self.tokens = (self.tokens or 0.0) + window.tokens
        if window.samples is not None:
            self.samples = (self.samples or 0.0) + window.samples


def add_windows(windows: Iterable[WorkWindow], into: Recorded, source: str) -> int:
    """Take windows in, and give how many; ranks that hold what another process counts are taken once."""
    blocks: dict[tuple[str, str], dict[int, list[_Block]]] = defaultdict(lambda: defaultdict(list))
    owners: dict[tuple[str, str, int], str] = {}
    layouts: dict[tuple[str, str], tuple[int, int, bool]] = {}
    number = 0
    for window in windows:
        key = (window.task, window.role)
        if owners.setdefault((*key, window.dp_rank), window.source) != window.source:
            continue
        number += 1
        size = window.tp * window.pp * window.cp
        layouts[key] = (size, max(window.dp, layouts.get(key, (0, 0, True))[1]), window.clock == "steps")
        own = blocks[key][window.dp_rank]
        if not own or own[-1].steps >= 1.0:
            own.append(_Block())
        own[-1].add(window)
        _note_decode(window, size, into)
    for (task, role), ranks in blocks.items():
        size, stated, of_log = layouts[task, role]
        placed = None if of_log else (size,) * max(stated, len(ranks))
        seen = into.task(task)
        seen.source = seen.source or source
        _note_stages(seen, role, list(ranks.values()), placed)
    return number


def _note_decode(window: WorkWindow, size: int, into: Recorded) -> None:
    shaped = window.batch_sequences and window.seq_len_tokens and window.tokens
    if window.role in _ROLLOUTS and shaped and window.working_s > 0.0:
        into.task(window.task).decode.append(
            DecodeSeen(
                size,
                window.batch_sequences or 0.0,
                window.seq_len_tokens or 0.0,
                window.tokens or 0.0,
                window.working_s,
                window.samples,
            )
        )


def _note_stages(seen: TaskSeen, role: str, ranks: list[list[_Block]], placed: Placed | None) -> None:
    """Join ranks step by step: the slowest counts, tokens and samples add up. The last block may be torn."""
    whole = [[block for block in rank if block.steps >= 1.0] for rank in ranks]
    ended = 0.0
    for number in range(min(map(len, whole))):
        now = [rank[number] for rank in whole]
        seconds = max(block.seconds / block.steps for block in now)
        tokens = _sum([block.tokens for block in now], now)
        samples = _sum([block.samples for block in now], now)
        count = sum(block.steps for block in now) / len(now)
        step, ended = ended + (count - 1.0) / 2.0, ended + count
        if seconds > 0.0:
            add_step(seen, role, step, seconds, tokens, samples, placed, count)


def add_step(
    seen: TaskSeen,
    role: str,
    step: float,
    seconds: float,
    tokens: float | None,
    samples: float | None,
    placed: Placed | None,
    steps: float = 1.0,
) -> None:
    """Note a stage of a step, with what its tokens and samples tell of lengths; seconds are above 0."""
    seen.stages.setdefault(role, []).append(StageSeen(step, seconds, tokens, placed, steps))
    if tokens is None or not samples:
        return
    if role in _ROLLOUTS:
        seen.responses.append((step, tokens / samples))
        seen.samples.append(samples)
    elif role in _TRAINERS:
        seen.wholes.append(tokens / samples)


def _sum(values: list[float | None], blocks: list[_Block]) -> float | None:
    known = [value / block.steps for value, block in zip(values, blocks, strict=True) if value is not None]
    return sum(known) if len(known) == len(values) else None
