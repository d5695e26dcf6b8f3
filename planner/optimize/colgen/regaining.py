"""Move blocks back to GPUs that they hold, where what has to give way there loses less."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from libra_plan.planner.optimize.colgen.placing import Gpu, Placing

__all__ = ["regain"]

_PASSES = 3
_LITTLE = 1e-12


def regain(placing: Placing) -> None:
    """Try each block that was moved on the nodes where its owner holds GPUs; what is worse is undone."""
    for _ in range(_PASSES):
        returned = 0
        for i in _losing(placing):
            returned += _return(placing, i)
        if not returned:
            return


def _losing(placing: Placing) -> list[int]:
    """List the blocks that could keep more of what their owner holds, those that lose most first."""
    found = []
    for i, block in enumerate(placing.blocks):
        held = placing.held.get(block.owner)
        if held and block.loss > 0 and block.size <= placing.widest[block.gpu_class]:
            lost = min(block.size, max(map(len, held.values()))) - placing.kept(i)
            if lost > 0:
                found.append((-lost * block.loss, i))
    return [i for _, i in sorted(found)]


def _return(placing: Placing, i: int) -> bool:
    """Put a block where its owner holds most, if that saves more than it costs others."""
    block = placing.blocks[i]
    mine = placing.held[block.owner]
    for name in sorted(mine, key=lambda name: (-len(mine[name]), name)):
        node = placing.nodes[name]
        if node.room.gpu_class != block.gpu_class or min(block.size, len(mine[name])) <= placing.kept(i):
            continue
        undo = _Undo(placing)
        if _exchange(placing, undo, i, name) > _LITTLE:
            return True
        undo.run()
    return False


class _Undo:
    """Where the blocks that are touched were before."""

    def __init__(self, placing: Placing) -> None:
        self.placing = placing
        self.was: dict[int, tuple[Gpu, ...]] = {}

    def lift(self, i: int) -> None:
        """Take a block off its GPUs."""
        self.was.setdefault(i, self.placing.where[i])
        self.placing.remove(i)

    def run(self) -> None:
        """Put every block back."""
        for i in self.was:
            if i in self.placing.where:
                self.placing.remove(i)
        for i, gpus in self.was.items():
            self.placing.occupy(i, gpus)


def _exchange(placing: Placing, undo: _Undo, i: int, name: str) -> float:
    """Move a block to a node, and what is in its way elsewhere; give the loss that saves."""
    blocks, node = placing.blocks, placing.nodes[name]
    mine = placing.held[blocks[i].owner][name]
    before = placing.loss(i)
    undo.lift(i)
    out: list[int] = []
    in_the_way = sorted(
        (j for j in node.placed if blocks[j].size <= blocks[i].size),
        # First what stands on held GPUs at the least loss.
        key=lambda j: (placing.saved(j) / blocks[j].size, not mine & set(node.placed[j]), j),
    )
    for j in in_the_way:
        if len(node.free) >= blocks[i].size and len(mine & node.free) >= min(len(mine), blocks[i].size):
            break
        before += placing.loss(j)
        undo.lift(j)
        out.append(j)
    if len(node.free) < blocks[i].size:
        return 0.0
    placing.take(i, (name,), blocks[i].size)
    for j in sorted(out, key=lambda j: -blocks[j].size):
        placing.keep(j, 1.0)
        if j not in placing.where:
            placing.keep(j, 0.0)
        if j not in placing.where and placing.put(j, clear=False) is None:
            return 0.0
    return before - sum(placing.loss(j) for j in [i, *out])
