"""Put the blocks of a choice on nodes: keep what is held, then best fit by falling size.

Sizes divide each other, so best fit by falling size fits whenever the capacity rows hold; blocks
kept in place may stand in the way of a larger one, and then the smallest of them give way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

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
    """GPUs of one class on one node, or on whole nodes, for an owner (a replica of a role)."""

    owner: str
    gpu_class: str
    size: int


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one GPU for an owner; of what it holds it rather keeps a share of the same kind."""

    owner: str
    gpu_class: str
    quarters: float
    memory: float
    kind: int = 0


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
    return _Placing(nodes, blocks, held).run()


class _Placing:
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
                    self._keep(i, share)
        waiting = [i for i in order if i not in self.where]
        waiting.reverse()
        while waiting:
            i = waiting.pop()
            out = self._put(i)
            if out is None:
                return None
            if out:
                waiting = sorted([*waiting, *out], key=lambda j: self.blocks[j].size)
        return [self.where[i] for i in range(len(self.blocks))]

    def _keep(self, i: int, share: float) -> None:
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
            self._take(i, (best[1],), block.size)

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
            self._take(i, tuple(chosen), wide)

    def _put(self, i: int) -> list[int] | None:
        """Place one block; give the smaller ones that had to go, None when there is no room."""
        block = self.blocks[i]
        own = self.of_class.get(block.gpu_class, [])
        wide = self.widest.get(block.gpu_class, 0)
        size, number = (block.size, 1) if block.size <= wide else (wide, block.size // max(wide, 1))
        if wide == 0 or size * number != block.size:
            return None
        chosen, out = self._tightest(block.gpu_class, size, number), []
        if len(chosen) < number:
            rest = [
                n for n in own if all(n is not c for c in chosen) and self._could_free(n, block.size) >= size
            ]
            rest.sort(key=lambda n: (sum(len(g) for g in n.placed.values()), n.room.id))
            for node in rest[: number - len(chosen)]:
                out += self._clear(node, size, block.size)
                chosen.append(node)
        if len(chosen) < number or any(len(n.free) < size for n in chosen):
            return None
        self._take(i, tuple(n.room.id for n in chosen), size)
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

    def _could_free(self, node: _Node, below: int) -> int:
        return len(node.free) + sum(len(g) for j, g in node.placed.items() if self.blocks[j].size < below)

    def _clear(self, node: _Node, size: int, below: int) -> list[int]:
        """Take the smallest blocks off a node until `size` GPUs are free."""
        out = []
        for j in sorted(node.placed, key=lambda j: (self.blocks[j].size, j)):
            if len(node.free) >= size or self.blocks[j].size >= below:
                break
            self._remove(j)
            out.append(j)
        return out

    def _remove(self, j: int) -> None:
        for name in {node for node, _ in self.where.pop(j)}:
            node = self.nodes[name]
            node.free |= set(node.placed.pop(j))
            self._sort_in(node)

    def _take(self, i: int, names: tuple[str, ...], size: int) -> None:
        taken: list[Gpu] = []
        for name in names:
            node = self.nodes[name]
            mine = self.held.get(self.blocks[i].owner, {}).get(name, set())
            gpus = tuple(sorted(sorted(node.free, key=lambda g: (g not in mine, g))[:size]))
            node.free -= set(gpus)
            node.placed[i] = gpus
            self._sort_in(node)
            taken += [(name, g) for g in gpus]
        self.where[i] = tuple(taken)


def place_shares(
    shares: Sequence[Share],
    memory: Mapping[str, float],
    held: HeldShares | None = None,
    most: Mapping[str, int] | None = None,
) -> list[tuple[str, Gpu | None, list[int]]]:
    """Pack shares on GPUs: class, the GPU if an owner's is kept, numbers of the shares on it.

    Shares that have a GPU go back on it; the others first fit by falling size, by several measures
    of size of which the best counts. While a class opens more than `most` GPUs, those with the
    fewest kept shares are given up.
    """
    keep = {owner: list(gpus) for owner, gpus in (held or {}).items()}
    while True:
        opened = _best_fit(shares, memory, keep)
        count = Counter(name for name, _, _ in opened)
        over = {name for name, number in (most or {}).items() if count[name] > number}
        giving = [(len(on), gpu) for name, gpu, on in opened if name in over and gpu is not None]
        if not giving:
            return opened
        out = {gpu for _, gpu in sorted(giving)[: max(1, len(giving) // 8)]}
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
