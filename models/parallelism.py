"""How one replica of a role is split over GPUs, and which splits a model allows."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """Tensor, pipeline, context and expert parallel degrees of one replica.

    Data parallelism is the number of replicas. Experts are folded into the replica's GPUs, so
    GPUs per replica = tp·pp·cp.
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        if min(self.tp, self.pp, self.cp, self.ep) < 1:
            raise ValueError(f"parallel degrees must be ≥ 1: {self}")

    @property
    def gpus_per_replica(self) -> int:
        """Count the GPUs of one replica."""
        return self.tp * self.pp * self.cp

    def __str__(self) -> str:
        degrees = (("tp", self.tp), ("pp", self.pp), ("cp", self.cp), ("ep", self.ep))
        return " ".join(f"{name}{value}" for name, value in degrees if value > 1) or "tp1"
