"""What a task is to the optimizer: something that answers prices with its best configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from libra_plan.planner.optimize.colgen.arrays import Floats

__all__ = ["Found", "Oracle", "Priced"]


@dataclass(frozen=True, slots=True)
class Found:
    """A configuration: its value, what it takes of each resource row, and how to build it again.

    `reduced` is its value less its demand at the prices it was found at.
    """

    value: float
    demand: Floats
    handle: object
    reduced: float


@dataclass(frozen=True, slots=True)
class Priced:
    """The answer to prices: no configuration of the task has a reduced value above `bound`."""

    bound: float
    configurations: tuple[Found, ...]


class Oracle(Protocol):
    """A task as the optimizer sees it. Not running is worth 0 and takes nothing."""

    def price(self, prices: Floats, known: float, keep: int = 4, slack: float = 0.0) -> Priced:
        """Find the best configuration at these prices, if it beats `known`, and some near it.

        The bound may be `slack` above the best configuration where that saves work.
        """
        ...

    def roughly(self, prices: Floats) -> Priced:
        """Bound the reduced value cheaply; the configurations need not exist, they are for prices only."""
        ...

    def plainly(self, prices: Floats) -> tuple[Found, ...]:
        """List a configuration or two that exist and are cheap to find; better ones may."""
        ...

    def near(self, prices: Floats, at_least: float, keep: int) -> tuple[Found, ...]:
        """List up to `keep` good configurations with a reduced value of `at_least`, unlike each other."""
        ...

    def every(self, prices: Floats, at_least: float, limit: int) -> tuple[tuple[Found, ...], bool]:
        """List all configurations with a reduced value of `at_least`; False when cut at `limit`."""
        ...

    def on_rows(self, weights: Floats) -> Oracle:
        """Give the same task with demands on other rows: `demand @ weights` of each configuration."""
        ...

    def demand(self, handle: object) -> Floats:
        """Give what the configuration of a handle takes of each row."""
        ...
