"""Turn windows of work, from our counters or other metrics, into stages, decode steps and lengths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from libra_plan.planner.simulate.fit.evidence import ROLLOUTS, DecodeSeen, Recorded, ReplicaSizes, TaskSeen
from libra_plan.planner.telemetry.work_windows import WorkWindow

__all__ = ["add_windows"]


@dataclass
class _Block:
    """Windows of one rank until at least one step has ended."""

    seconds: float = 0.0
    steps: float = 0.0
    tokens: float | None = None
    samples: float | None = None

    def add(self, window: WorkWindow) -> None:
        self.seconds += window.working_s
        self.steps += window.steps or 0.0
        if window.tokens is not None:
            self.tokens = (self.tokens or 0.0) + window.tokens
        if window.samples is not None:
            self.samples = (self.samples or 0.0) + window.samples


def add_windows(windows: Iterable[WorkWindow], into: Recorded, source: str) -> None:
    """Add windows; a rank that several processes count is added once."""
    blocks: dict[tuple[str, str], dict[int, list[_Block]]] = defaultdict(lambda: defaultdict(list))
    owners: dict[tuple[str, str, int], str] = {}
    layouts: dict[tuple[str, str], tuple[int, int, bool]] = {}
    for window in windows:
        key = (window.task, window.role)
        if owners.setdefault((*key, window.dp_rank), window.source) != window.source:
            continue
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


def _note_decode(window: WorkWindow, size: int, into: Recorded) -> None:
    sequences, context, tokens = window.batch_sequences, window.seq_len_tokens, window.tokens
    if window.role in ROLLOUTS and sequences and context and tokens and window.working_s > 0.0:
        seen = DecodeSeen(size, sequences, context, tokens, window.working_s, window.samples)
        into.task(window.task).decode.append(seen)


def _note_stages(seen: TaskSeen, role: str, ranks: list[list[_Block]], placed: ReplicaSizes | None) -> None:
    """Join ranks step by step: the slowest counts, tokens and samples add up. The last block may be torn."""
    whole = [[block for block in rank if block.steps >= 1.0] for rank in ranks]
    ended = 0.0
    for now in zip(*whole, strict=False):
        seconds = max(block.seconds / block.steps for block in now)
        tokens = _sum([None if block.tokens is None else block.tokens / block.steps for block in now])
        samples = _sum([None if block.samples is None else block.samples / block.steps for block in now])
        count = sum(block.steps for block in now) / len(now)
        step, ended = ended + (count - 1.0) / 2.0, ended + count
        if seconds > 0.0:
            seen.add_step(role, step, seconds, tokens, samples, placed, count)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
