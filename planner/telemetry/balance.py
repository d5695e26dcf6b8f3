"""Check the tokens that were counted against batch and length of the same windows.

Numbers that contradict each other are worth more as a warning than as a rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from libra_plan.planner.telemetry.work_windows import WorkWindow
from libra_plan.profiles.physics import BALANCE

__all__ = ["Imbalance", "imbalances"]


@dataclass(frozen=True, slots=True)
class Imbalance:
    """Counts of a role that cannot all be true: a stable code, whose they are, and a sentence."""

    code: str
    task: str
    role: str
    text: str


@dataclass
class _Steps:
    tokens: float = 0.0
    passed: float = 0.0
    written: float = 0.0


def imbalances(windows: Iterable[WorkWindow]) -> Iterator[Imbalance]:
    """Compare the tokens counted per step with those that batch and length imply.

    A pass over whole sequences goes over batch × length tokens a step, a decoding step writes one
    per sequence. Tokens that are a whole multiple of either were counted by every rank of a group
    (A053).
    """
    found: dict[tuple[str, str], _Steps] = {}
    for window in windows:
        if window.tokens and window.steps and window.batch_sequences and window.seq_len_tokens:
            sums = found.setdefault((window.task, window.role), _Steps())
            sums.tokens += window.tokens
            sums.passed += window.steps * window.batch_sequences * window.seq_len_tokens
            sums.written += window.steps * window.batch_sequences
    for (task, role), sums in sorted(found.items()):
        if not (sums.passed > 0 and sums.written > 0):
            continue  # so small that their products are nothing
        ratios = (sums.tokens / sums.passed, sums.tokens / sums.written)
        if not any(_balanced(ratio) for ratio in ratios):
            yield Imbalance("tokens-unbalanced", task, role, _unbalanced(ratios[0]))


def _balanced(ratio: float) -> bool:
    # padding may be counted or not: as much above as below
    return 1 / BALANCE[1] <= ratio <= BALANCE[1]


def _unbalanced(ratio: float) -> str:
    said = f"tokens counted per step are {ratio:.3g} × batch_sequences × seq_len_tokens"
    whole = round(ratio)
    if whole >= 2 and abs(ratio / whole - 1) < 0.01:
        said += f": counted {whole} times over, by every rank of a group?"
    return said
