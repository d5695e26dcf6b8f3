"""Put the blocks of a choice on nodes: keep what is held, then best fit by falling size.

Sizes divide each other, so best fit by falling size fits whenever the capacity rows hold; blocks
kept in place may stand in the way of a larger one, and then the smallest of them give way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from libra_plan.planner.optimize.colgen.regaining import regain
from libra_plan.planner.optimize.colgen.squeezing import squeeze

__all__ = ["Block", "NodeRoom", "Share", "place_blocks", "place_shares"]

Gpu = tuple[str, int]
"""Node and index."""

HeldShares = Mapping[str, Iterable[tuple[Gpu, int]]]
"""The GPU and the kind of every share that an owner holds."""


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """A node: its class and the GPUs that may be used."""

    id: str
    gpu_class: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """GPUs of one class on one node, or on whole nodes, for an owner (a replica of a role).

    `loss` is what a GPU costs that the owner does not hold yet.
    """

    owner: str
    gpu_class: str
    size: int
    loss: float = 1.0


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one GPU for an owner; of what it holds it rather keeps a share of the same kind.

    `loss` is what it costs on a GPU that the owner does not hold yet.
    """

    owner: str
    gpu_class: str
    quarters: float
    memory: float
    kind: int = 0
    loss: float = 1.0


@dataclass(eq=False)
class _Node:
    room: NodeRoom
    free: set[int]
    placed: dict[int, tuple[int, ...]] = field(default_factory=dict)


def place_blocks(
    nodes: Sequence[NodeRoom], blocks: Sequence[Block], held: Mapping[str, Iterable[Gpu]]
) -> list[tuple[Gpu, ...]] | None:
    """Give the GPUs of every block, in order; None when one does not fit.

    `held[owner]` lists the GPUs an owner has now; as many of them as possible stay.
    """
    return Placing(nodes, blocks, held).run()


class Placing:
    def __init__(
        self, nodes: Sequence[NodeRoom], blocks: Sequence[Block], held: Mapping[str, Iterable[Gpu]]
    ) -> None:
        self.blocks = blocks
        self.nodes = {node.id: _Node(node, set(node.gpus)) for node in nodes}
        self.of_class: dict[str, list[_Node]] = {}
        for each in self.nodes.values():
            self.of_class.setdefault(each.room.gpu_class, []).append(each)
        self.widest = {name: max(len(n.room.gpus) for n in own) for name, own in self.of_class.items()}
        self.held = {owner: self._usable(gpus) for owner, gpus in held.items()}
        self.held_there: dict[str, set[int]] = {}
        """GPUs that some owner holds: the others are taken first."""
        for own in self.held.values():
            for name, gpus in own.items():
                self.held_there.setdefault(name, set()).update(gpus)
        self.where: dict[int, tuple[Gpu, ...]] = {}
        self.by_free: dict[tuple[str, int], list[str]] = {}
        """Names of the nodes with so many GPUs free, as a heap."""
        for each in self.nodes.values():
            self._sort_in(each)

    def _usable(self, gpus: Iterable[Gpu]) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for node, index in gpus:
            if node in self.nodes and index in self.nodes[node].room.gpus:
                found.setdefault(node, set()).add(index)
        return found

    def run(self) -> list[tuple[Gpu, ...]] | None:
        order = sorted(range(len(self.blocks)), key=lambda i: -self.blocks[i].size)
        for share in (1.0, 0.0):  # blocks kept whole first, then those kept in part
            for i in order:
                if i not in self.where:
                    self.keep(i, share)
        waiting = [i for i in order if i not in self.where]
        waiting.reverse()
        while waiting:
            i = waiting.pop()
            out = self.put(i)
            if out is None:
                return None
            if out:
                waiting = sorted([*waiting, *out], key=lambda j: self.blocks[j].size)
        if self.held:
            regain(self)
        return [self.where[i] for i in range(len(self.blocks))]

    def kept(self, i: int) -> int:
        """Count the GPUs of a block that its owner holds."""
        mine = self.held.get(self.blocks[i].owner, {})
        return sum(gpu in mine.get(name, ()) for name, gpu in self.where[i])

    def saved(self, i: int) -> float:
        """Give what a block would lose if it kept nothing."""
        return self.blocks[i].loss * self.kept(i)

    def loss(self, i: int) -> float:
        """Give what the GPUs of a block cost that its owner does not hold."""
        return self.blocks[i].loss * (self.blocks[i].size - self.kept(i)) if self._holds(i) else 0.0

    def _holds(self, i: int) -> bool:
        return bool(self.held.get(self.blocks[i].owner))

    def keep(self, i: int, share: float) -> None:
        """Put a block where its owner holds most, if that is such a share of it at least."""
        block = self.blocks[i]
        mine = self.held.get(block.owner)
        wide = self.widest.get(block.gpu_class, 0)
        if not mine:
            return
        if block.size > wide:
            self._keep_nodes(i, mine, wide, share)
            return
        best: tuple[int, str] | None = None
        for name, gpus in mine.items():
            node = self.nodes[name]
            if node.room.gpu_class != block.gpu_class or len(node.free) < block.size:
                continue
            kept = min(block.size, len(gpus & node.free))
            if kept and kept >= share * block.size and (best is None or kept > best[0]):
                best = (kept, name)
        if best is not None:
            self.take(i, (best[1],), block.size)

    def _keep_nodes(self, i: int, mine: dict[str, set[int]], wide: int, share: float) -> None:
        block = self.blocks[i]
        whole = [
            (len(gpus & self.nodes[name].free), name)
            for name, gpus in mine.items()
            if self.nodes[name].room.gpu_class == block.gpu_class and len(self.nodes[name].free) == wide
        ]
        number = block.size // wide
        chosen = [name for kept, name in sorted(whole, key=lambda e: (-e[0], e[1])) if kept][:number]
        if len(chosen) == number and share <= 1.0:
            self.take(i, tuple(chosen), wide)

    def put(self, i: int, *, clear: bool = True) -> list[int] | None:
        """Place one block; give the smaller ones that had to go, None when there is no room.

        Without `clear` none have to go.
        """
        block = self.blocks[i]
        own = self.of_class.get(block.gpu_class, [])
        wide = self.widest.get(block.gpu_class, 0)
        size, number = (block.size, 1) if block.size <= wide else (wide, block.size // max(wide, 1))
        if wide == 0 or size * number != block.size:
            return None
        chosen, out = self._tightest(block.gpu_class, size, number), []
        if len(chosen) < number and clear:
            rest = []
            for node in own:
                if all(node is not other for other in chosen):
                    out_of = self._in_the_way(node, size, block.size)
                    if out_of is not None:
                        rest.append((sum(map(self.saved, out_of)), node.room.id, out_of))
            for _, name, out_of in sorted(rest)[: number - len(chosen)]:
                for j in out_of:
                    self.remove(j)
                out += out_of
                chosen.append(self.nodes[name])
        if len(chosen) < number or any(len(n.free) < size for n in chosen):
            return None
        self.take(i, tuple(n.room.id for n in chosen), size)
        return out

    def _tightest(self, gpu_class: str, size: int, number: int) -> list[_Node]:
        """Give the nodes with the fewest free GPUs that have so many, those first by name."""
        found: list[_Node] = []
        for free in range(size, self.widest[gpu_class] + 1):
            waiting = self.by_free.setdefault((gpu_class, free), [])
            while waiting and len(found) < number:
                node = self.nodes[heappop(waiting)]
                # Entries are left behind when a node changes, so they may be old or twice there.
                if len(node.free) == free and all(node is not other for other in found):
                    found.append(node)
        for node in found:
            self._sort_in(node)
        return found

    def _sort_in(self, node: _Node) -> None:
        heappush(self.by_free.setdefault((node.room.gpu_class, len(node.free)), []), node.room.id)

    def _in_the_way(self, node: _Node, size: int, below: int) -> list[int] | None:
        """List blocks below a size that leave so many GPUs free when they go: those that lose least."""
        free, out = len(node.free), list[int]()
        smaller = [j for j in node.placed if self.blocks[j].size < below]
        for j in sorted(smaller, key=lambda j: (self.saved(j) / self.blocks[j].size, self.blocks[j].size, j)):
            if free >= size:
                break
            free += len(node.placed[j])
            out.append(j)
        return out if free >= size else None

    def remove(self, j: int) -> None:
        """Take a block off its GPUs."""
        for name in {node for node, _ in self.where.pop(j)}:
            node = self.nodes[name]
            node.free |= set(node.placed.pop(j))
            self._sort_in(node)

    def take(self, i: int, names: tuple[str, ...], size: int) -> None:
        """Put a block on so many free GPUs of each node, those its owner holds first."""
        taken: list[Gpu] = []
        for name in names:
            node = self.nodes[name]
            mine = self.held.get(self.blocks[i].owner, {}).get(name, set())
            others = self.held_there.get(name, set())
            gpus = sorted(node.free, key=lambda g: (g not in mine, g in others, g))[:size]
            taken += [(name, g) for g in sorted(gpus)]
        self.occupy(i, tuple(taken))

    def occupy(self, i: int, gpus: tuple[Gpu, ...]) -> None:
        """Put a block on free GPUs."""
        for name in {name for name, _ in gpus}:
            node = self.nodes[name]
            own = tuple(g for n, g in gpus if n == name)
            node.free -= set(own)
            node.placed[i] = own
            self._sort_in(node)
        self.where[i] = gpus


def place_shares(
    shares: Sequence[Share],
    memory: Mapping[str, float],
    held: HeldShares | None = None,
    most: Mapping[str, int] | None = None,
) -> list[tuple[str, Gpu | None, list[int]]]:
    """Pack shares on GPUs: class, the GPU if an owner's is kept, numbers of the shares on it.

    Shares that have a GPU go back on it; the others first fit by falling size, by several measures of
    size of which the best counts. Where a class opens more than `most` GPUs, shares move together on
    fewer; if that cannot be, those with the fewest kept shares are packed anew.
    """
    keep = {owner: list(gpus) for owner, gpus in (held or {}).items()}
    mine = {owner: {gpu for gpu, _ in own} for owner, own in keep.items()}
    while True:
        opened = _best_fit(shares, memory, keep)
        out: set[Gpu] = set()
        for name, number in (most or {}).items():
            own = [each for each in opened if each[0] == name]
            giving = sorted((len(on), gpu) for _, gpu, on in own if gpu is not None)
            if len(own) > number:
                fewer = squeeze(shares, memory[name], mine, own, number)
                if fewer is not None:
                    opened = [each for each in opened if each[0] != name] + fewer
                else:
                    out.update(gpu for _, gpu in giving[: max(len(own) - number, len(giving) // 8)])
        if not out:
            return opened
        keep = {owner: [each for each in own if each[0] not in out] for owner, own in keep.items()}


def _best_fit(
    shares: Sequence[Share], memory: Mapping[str, float], held: HeldShares
) -> list[tuple[str, Gpu | None, list[int]]]:
    sizes: list[Callable[[Share], tuple[float, ...]]] = [
        lambda s: (max(s.quarters / 4, s.memory / memory[s.gpu_class]),),
        lambda s: (s.quarters / 4 + s.memory / memory[s.gpu_class],),
        lambda s: (s.quarters, s.memory),
        lambda s: (s.memory, s.quarters),
    ]
    opened: list[tuple[str, Gpu | None, list[int]]] = []
    for name in sorted({share.gpu_class for share in shares}):
        own = [i for i, share in enumerate(shares) if share.gpu_class == name]
        some = [shares[i] for i in own]
        packed = min((_first_fit(some, memory, held, size) for size in sizes), key=len)
        opened += [(name, gpu, [own[i] for i in on]) for _, gpu, on in packed]
    return opened


def _first_fit(
    shares: Sequence[Share],
    memory: Mapping[str, float],
    held: HeldShares,
    size: Callable[[Share], tuple[float, ...]],
) -> list[tuple[str, Gpu | None, list[int]]]:
    packing = _Packing(shares, memory)
    waiting = {owner: list(gpus) for owner, gpus in held.items()}
    rest = list(range(len(shares)))
    for same_kind in (True, False):
        left = []
        for i in rest:
            own = waiting.get(shares[i].owner, [])
            fit = next((each for each in own if not same_kind or each[1] == shares[i].kind), None)
            if fit is None or not packing.put_on(fit[0], i):
                left.append(i)
            else:
                own.remove(fit)
        rest = left
    for i in sorted(rest, key=lambda i: tuple(-part for part in size(shares[i]))):
        packing.put_first(i)
    return packing.opened


class _Packing:
    def __init__(self, shares: Sequence[Share], memory: Mapping[str, float]) -> None:
        self.shares, self.memory = shares, memory
        self.opened: list[tuple[str, Gpu | None, list[int]]] = []
        self._used: list[list[float]] = []
        self._by_gpu: dict[Gpu, int] = {}
        self._open: dict[str, list[int]] = {}

    def put_on(self, gpu: Gpu, i: int) -> bool:
        """Put a share on a certain GPU if it fits."""
        if gpu not in self._by_gpu:
            self._by_gpu[gpu] = self._new(i, gpu)
            return True
        return self._put(self._by_gpu[gpu], i)

    def put_first(self, i: int) -> None:
        """Put a share on the first GPU it fits on, or on a new one."""
        if not any(self._put(at, i) for at in self._open.get(self.shares[i].gpu_class, ())):
            self._new(i, None)

    def _new(self, i: int, gpu: Gpu | None) -> int:
        share = self.shares[i]
        self.opened.append((share.gpu_class, gpu, [i]))
        self._used.append([share.quarters, share.memory])
        self._open.setdefault(share.gpu_class, []).append(len(self.opened) - 1)
        return len(self.opened) - 1

    def _put(self, at: int, i: int) -> bool:
        share, used = self.shares[i], self._used[at]
        room = self.memory[share.gpu_class] * (1 + 1e-12)
        if (
            self.opened[at][0] != share.gpu_class
            or used[0] + share.quarters > 4
            or used[1] + share.memory > room
        ):
            return False
        self.opened[at][2].append(i)
        used[0] += share.quarters
        used[1] += share.memory
        if used[0] >= 4:
            self._open[share.gpu_class].remove(at)
        return True
