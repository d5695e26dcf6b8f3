"""The tables of `simulate`: figures of policies over seeds, what changes, and the ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from libra_plan.cli import render

if TYPE_CHECKING:
    from libra_plan.planner.simulate.report import Interval, Spread, Summary

__all__ = ["print_figures", "print_ratios"]

_FORMS = {
    "weighted": ("× fair share", 1.0, 3),
    "of_bound": ("of the proven bound, %", 100.0, 1),
    "fairness": ("worst task, × fair share", 1.0, 3),
    "tokens_per_s": ("tokens /s", 1.0, 0),
    "samples_per_s": ("samples /s", 1.0, 2),
    "jct_mean_s": ("JCT mean, h", 1 / 3600, 2),
    "jct_p99_s": ("JCT p99, h", 1 / 3600, 2),
    "makespan_s": ("makespan, h", 1 / 3600, 2),
    "idle": ("idle, %", 100.0, 1),
    "bubbles": ("bubbles, %", 100.0, 1),
    "moves_per_hour": ("moves /h", 1.0, 2),
    "lost_gpu_hours": ("lost to switching, GPU h", 1.0, 1),
    "decide_p50_s": ("decision p50, ms", 1000.0, 1),
    "decide_p99_s": ("decision p99, ms", 1000.0, 1),
}
"""Name, factor and digits of each figure, in the order of the table; then come the rates of tasks."""
_ABREAST = 5
"""Policies side by side in one table."""


def print_figures(found: Sequence[Summary]) -> None:
    """Write a table a world: a row a figure, a column a policy; and one of the changes, where seeds tell."""
    for world in dict.fromkeys(each.world for each in found):
        own = [each for each in found if each.world == world]
        over = own[0].over
        seeds = max(each.value.seeds for each in own)
        told = f"mean of {seeds} seeds ± half of its 95 % interval" if seeds > 1 else "one seed: no intervals"
        _print_blocks(f"{world}: {told}", own, lambda each: each.value, signed=False)
        if seeds > 1 and any(each.change for each in own):
            title = f"{world}: difference to {over}, seed by seed"
            _print_blocks(title, [e for e in own if e.policy != over], lambda each: each.change, signed=True)


def _print_blocks(
    title: str, own: Sequence[Summary], spread: Callable[[Summary], Spread | None], *, signed: bool
) -> None:
    policies = list(dict.fromkeys(each.policy for each in own))
    for first in range(0, len(policies), _ABREAST):
        abreast = policies[first : first + _ABREAST]
        cells = {(each.figure, each.policy): _cell(each, spread(each), signed=signed) for each in own}
        rows = [
            [name, *(cells.get((figure, policy), "–") for policy in abreast)]
            for figure, name in _rows(own)
            if any((figure, policy) in cells for policy in policies)
        ]
        render.print_line(title)
        render.print_table(["", *abreast], rows, right=range(1, len(abreast) + 1))
        render.print_line("")


def _rows(own: Sequence[Summary]) -> Iterator[tuple[str, str]]:
    """Give the figures in order with their names."""
    for figure, (name, _, _) in _FORMS.items():
        yield figure, name
    for figure in dict.fromkeys(each.figure for each in own if "." in each.figure):
        yield figure, f"{figure.partition('.')[2]}, × fair share"


def _cell(each: Summary, spread: Spread | None, *, signed: bool) -> str:
    if spread is None:
        return "–"
    _, factor, digits = _FORMS.get(each.figure, ("", 1.0, 3))
    text = f"{spread.mean * factor:{'+' if signed else ''},.{digits}f}"
    if spread.high is None:
        return text
    return f"{text} ± {(spread.high - spread.mean) * factor:,.{digits}f}"


def print_ratios(ratios: Sequence[Interval]) -> None:
    """Write the paired ratios of weighted throughput."""
    if not ratios:
        return
    render.print_line("weighted throughput, paired by seed (geometric mean)")
    lines = [
        [each.world, each.policy, each.over, f"{each.mean:.3f}", _span(each), str(each.seeds)]
        for each in ratios
    ]
    render.print_table(["world", "policy", "over", "ratio", "95 % interval", "seeds"], lines, right=(3, 4, 5))


def _span(each: Interval) -> str:
    return "–" if each.low is None else f"{each.low:.3f} – {each.high:.3f}"
