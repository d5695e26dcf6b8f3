"""Find the recorded costs of moves, and say what they price."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.cli import render
from libra_plan.cli.errors import printable
from libra_plan.errors import InputError

if TYPE_CHECKING:
    from libra_plan.planner.problem import Problem
    from libra_plan.profiles.switch_costs import SwitchPrice

__all__ = ["cost_files", "read_moves", "with_digest"]


def cost_files(named: Path | None, running: Path | None, out: Path | None) -> tuple[Path, ...]:
    """Say where recorded costs of moves may lie, the most telling place first."""
    from libra_plan.profiles.switch_costs import STORE

    if named is not None:
        if not named.exists():
            raise InputError("there are no recorded costs of moves", got=printable(named))
        return (named,)
    folders = [place if place.is_dir() else place.parent for place in (running, out) if place is not None]
    return tuple(folder / STORE for folder in folders)


def read_moves(files: Sequence[Path], profiles: Path) -> dict[str, SwitchPrice]:
    """Read the first of the files, or that beside the profiles, that is there; give prices by task."""
    from libra_plan.profiles.switch_costs import STORE, read_switch_costs, switch_prices

    found = next((path for path in (*files, profiles / STORE) if path.exists()), None)
    moves = {} if found is None else switch_prices(read_switch_costs(found))
    for task, one in moves.items():
        render.note(
            f"moving {task} is priced at {one.p90_s:.3g} s: measured, 90th percentile of {one.records} moves"
        )
    return moves


def with_digest(problem: Problem, moves: Mapping[str, SwitchPrice]) -> Problem:
    """Count the prices of moves among the inputs, where there are any."""
    import hashlib

    from libra_plan.profiles.switch_costs import STORE

    if not moves:
        return problem
    text = json.dumps({task: one.p90_s for task, one in moves.items()}, sort_keys=True)
    digest = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    return replace(problem, input_digests={**problem.input_digests, STORE: digest})
