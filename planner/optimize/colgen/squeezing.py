"""Pack shares on fewer GPUs while most stay where they are: one share makes room for a larger one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libra_plan.planner.optimize.colgen.placing import Gpu, Share

__all__ = ["squeeze"]

_LOOKED_AT = 12  # shares that may make way for one

Opened = tuple[str, "Gpu | None", list[int]]


def squeeze(
    shares: Sequence[Share],
    room: float,
    held: Mapping[str, Collection[Gpu]],
    opened: Sequence[Opened],
    most: int,
) -> list[Opened] | None:
    """Give up GPUs of one class until there are `most`, and put their shares on the others.

    Those whose shares lose least are given up. `room` is the memory of a GPU, `held[owner]` lists the
    GPUs on which an owner's shares move nothing. None: some share finds no place even where another
    one makes way for it.
    """

    def loss(i: int, gpu: Gpu | None) -> float:
        return 0.0 if gpu in held.get(shares[i].owner, ()) else shares[i].loss

    def lost(each: Opened) -> float:
        return sum(shares[i].loss - loss(i, each[1]) for i in each[2])

    order = sorted(opened, key=lambda each: (lost(each), len(each[2])))
    given_up, stay = order[: len(order) - most], order[len(order) - most :]
    packing = _Packing(shares, room, stay, loss)
    waiting = sorted((i for _, _, on in given_up for i in on), key=lambda i: _size(shares[i], room))
    while waiting:
        if not packing.put(waiting.pop()):
            return None
    return [(name, gpu, on) for (name, gpu, _), on in zip(stay, packing.on, strict=True)]


def _size(share: Share, room: float) -> tuple[float, float]:
    return share.quarters, share.memory / room


class _Packing:
    def __init__(
        self,
        shares: Sequence[Share],
        room: float,
        opened: Sequence[Opened],
        loss: Callable[[int, Gpu | None], float],
    ) -> None:
        self.shares, self.loss = shares, loss
        self.gpus = [gpu for _, gpu, _ in opened]
        self.on = [list(on) for _, _, on in opened]
        self.quarters = [4 - sum(shares[i].quarters for i in own) for own in self.on]
        self.memory = [room * (1 + 1e-12) - sum(shares[i].memory for i in own) for own in self.on]

    def put(self, i: int) -> bool:
        """Put a share where it fits, or where one moves on that fits elsewhere."""
        found = self._best(i)
        at = self._make_way(i) if found is None else found[1]
        if at is None:
            return False
        self._move(i, at, 1)
        return True

    def _best(self, i: int, but: int = -1) -> tuple[float, int] | None:
        """Find what a share loses where it loses least, with little room left over, and where that is."""
        share = self.shares[i]
        fitting = [
            (self.loss(i, self.gpus[at]), self.quarters[at], at)
            for at in range(len(self.on))
            if self.quarters[at] >= share.quarters and self.memory[at] >= share.memory and at != but
        ]
        return min(fitting)[::2] if fitting else None

    def _make_way(self, i: int) -> int | None:
        """Let the share make way that loses least by it."""
        best: tuple[float, int, int, int] | None = None
        looked = 0
        for at, j in self._smaller(i):
            there = self._best(j, at)
            if there is not None:
                lost = there[0] - self.loss(j, self.gpus[at]) + self.loss(i, self.gpus[at])
                best = min(best or (lost, at, j, there[1]), (lost, at, j, there[1]))
                looked += 1
            if looked == _LOOKED_AT:
                break
        if best is None:
            return None
        _, at, j, to = best
        self._move(j, at, -1)
        self._move(j, to, 1)
        return at

    def _smaller(self, i: int) -> Iterator[tuple[int, int]]:
        """List GPUs and smaller shares on them in whose place a share would fit."""
        share, widest = self.shares[i], max(self.quarters)
        for at, own in enumerate(self.on):
            for j in own:
                other = self.shares[j]
                if (
                    other.quarters <= widest
                    and self.quarters[at] + other.quarters >= share.quarters
                    and self.memory[at] + other.memory >= share.memory
                    and (other.quarters, other.memory) < (share.quarters, share.memory)
                ):
                    yield at, j

    def _move(self, i: int, at: int, by: int) -> None:
        """Put a share on a GPU (1), or take it off (-1)."""
        (self.on[at].append if by > 0 else self.on[at].remove)(i)
        self.quarters[at] -= by * self.shares[i].quarters
        self.memory[at] -= by * self.shares[i].memory
