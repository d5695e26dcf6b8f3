"""Shorten lists of node names: `node0…node15` for consecutive numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["node_ranges", "node_spans"]

_MOST_RUNS = 6


def node_spans(names: Sequence[str]) -> list[str]:
    """Return one text for every run of nodes with consecutive numbers."""
    runs: list[list[str]] = []
    for name in sorted(names, key=_parts):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return [run[0] if len(run) == 1 else f"{run[0]}…{run[-1]}" for run in runs]


def node_ranges(names: Sequence[str]) -> str:
    """Join the runs into one short line; of many runs, only the first few and the last."""
    spans = node_spans(names)
    if len(spans) > _MOST_RUNS:
        spans = [*spans[: _MOST_RUNS - 2], "…", spans[-1]]
    return " ".join(spans)


def _parts(name: str) -> tuple[str, int, str]:
    digits = re.search(r"[0-9]*\Z", name)
    number = digits.group() if digits else ""
    return name[: len(name) - len(number)], int(number or -1), name


def _follows(one: str, other: str) -> bool:
    (stem, number, _), (other_stem, other_number, _) = _parts(one), _parts(other)
    return stem == other_stem and number >= 0 and other_number == number + 1
