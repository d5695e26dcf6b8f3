"""Keep the row prices of a solve on disk: the start of the next one of the same or a like problem."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from libra_plan.planner.solvers.colgen.arrays import Floats

__all__ = ["by_name", "load_prices", "prices_by_name", "save_prices"]


def by_name(names: Sequence[str], prices: Floats) -> dict[str, float]:
    """Name the prices by their rows."""
    return {name: float(price) for name, price in zip(names, prices, strict=True)}


def prices_by_name(names: Sequence[str], known: Mapping[str, float]) -> Floats | None:
    """Put known prices on rows; rows that are new cost nothing. None when no row is known."""
    if not any(name in known for name in names):
        return None
    return np.array([max(0.0, known.get(name, 0.0)) for name in names])


def save_prices(path: Path, key: str, names: Sequence[str], prices: Floats) -> None:
    """Write prices under a key that says what they are for, beside those of other keys."""
    stored = _read(path)
    stored[key] = by_name(names, prices)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(stored, sort_keys=True), encoding="utf-8")
    new.replace(path)


def load_prices(path: Path, key: str, names: Sequence[str]) -> Floats | None:
    """Read the prices of a key onto rows; None when there are none, or the file is damaged.

    Any prices give a bound that holds, so old ones cost a round at worst.
    """
    known = _read(path).get(key)
    return None if known is None else prices_by_name(names, known)


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(key): {str(name): float(price) for name, price in prices.items()}
            for key, prices in stored.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
