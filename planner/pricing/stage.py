"""What all kinds of stage have in common: a profile that times them, and a price per replica count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from libra_plan.models.fit import FittedProfile
from libra_plan.models.parallelism import Layout
from libra_plan.models.training_stage import StageCost
from libra_plan.profiles.schema import Point

__all__ = ["Pricer", "Stage", "batch_tokens", "shortest_tokens"]

Pricer = Callable[[int], StageCost]
"""Price a replica count."""


class Stage(ABC):
    """A role's kind of work with the profile that times it, and remarks on how it is priced."""

    profile: FittedProfile
    notes: tuple[str, ...]

    @abstractmethod
    def prepare(self, layout: Layout, memory_mib: float, allow_prior: bool) -> Pricer:
        """Do once what all replica counts of a layout share; `memory_mib` is what the role may reserve."""

    def ways(self) -> tuple[tuple[Stage, bool], ...]:
        """List how the stage may run, and whether a way needs a pool to itself."""
        return ((self, False),)


def shortest_tokens(points: Iterable[Point]) -> float:
    """Give the shortest length measured, tokens."""
    return float(min((p.seq_len_tokens for p in points if p.status == "ok" and p.seq_len_tokens), default=1))


def batch_tokens(points: Iterable[Point]) -> float:
    """Give the tokens of the largest batch measured at the shortest length: a full micro-batch."""
    measured = [p for p in points if p.status == "ok" and p.seq_len_tokens is not None]
    shortest = shortest_tokens(measured)
    sizes = [p.batch_sequences * shortest for p in measured if p.seq_len_tokens == shortest]
    return max(sizes, default=1.0)
