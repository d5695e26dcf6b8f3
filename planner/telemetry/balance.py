"""Check windows against what they say themselves, and progress against utilisation.

Numbers that contradict each other are worth more as a finding than as a rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from libra_plan.planner.telemetry.work_windows import WorkWindow
from libra_plan.profiles.physics import BALANCE

__all__ = ["BUSY", "Finding", "balance_findings", "hang_finding", "patience_s", "progressed"]

BUSY = 0.9
"""A GPU that is at least this busy is working, or spinning: only progress tells which."""
_QUIET_WINDOWS = 3.0
_LEAST_QUIET_S = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that cannot be as it looks: a stable code, whose it is, and a sentence."""

    code: str
    task: str
    role: str
    text: str


@dataclass
class _Steps:
    tokens: float = 0.0
    passed: float = 0.0
    written: float = 0.0


def balance_findings(windows: Iterable[WorkWindow]) -> Iterator[Finding]:
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
        ratios = (sums.tokens / sums.passed, sums.tokens / sums.written)
        if not any(_balanced(ratio) for ratio in ratios):
            yield Finding("tokens-unbalanced", task, role, _unbalanced(ratios[0]))


def _balanced(ratio: float) -> bool:
    # padding may be counted or not: as much above as below
    return 1 / BALANCE[1] <= ratio <= BALANCE[1]


def _unbalanced(ratio: float) -> str:
    said = f"tokens counted per step are {ratio:.3g} × batch_sequences × seq_len_tokens"
    whole = round(ratio)
    if whole >= 2 and abs(ratio / whole - 1) < 0.01:
        said += f": counted {whole} times over, by every rank of a group?"
    return said


def hang_finding(
    task: str,
    role: str,
    windows: Iterable[WorkWindow],
    now_s: float,
    *,
    utilisation: float | None,
    power_w: float | None = None,
) -> Finding | None:
    """Tell a hang from work: GPUs are busy and nothing has got done for much longer than usual.

    `windows` are the role's recent ones and `now_s` is on their clock; `utilisation` is the mean of
    the role's GPUs since the last progress, 0 to 1. Quiet means three times as long as the longest
    usual pause between windows with progress, and at least a minute. None: no hang can be told, be
    it that work gets done, that the GPUs rest, or that nothing is known of them.
    """
    ends = sorted(window.end_s for window in windows if progressed(window))
    if not ends or utilisation is None or utilisation < BUSY:
        return None
    pauses = [later - earlier for earlier, later in pairwise(ends)]
    quiet_s = now_s - ends[-1]
    if quiet_s <= patience_s(max(pauses, default=0.0)):
        return None
    power = "" if power_w is None else f" at {power_w:.0f} W"
    return Finding(
        "hang",
        task,
        role,
        f"no progress for {quiet_s:.0f} s while its GPUs are {utilisation:.0%} busy{power}: it spins",
    )


def patience_s(longest_pause_s: float) -> float:
    """Give how long a role may be quiet: three times its longest usual pause, a minute at least."""
    return max(_QUIET_WINDOWS * longest_pause_s, _LEAST_QUIET_S)


def progressed(window: WorkWindow) -> bool:
    """Tell whether anything got done in a window."""
    return any((window.tokens, window.samples, window.episodes, window.steps))
