"""Best fit: which node each block goes to, worked out by hand, and that nothing is ever taken twice."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize.assignment import CpuNeed, Item, NodeAssignment
from libra_plan.planner.optimize.first_fit import first_fit, splits_racks


def _cluster(*sizes: int, cores: float = 0.0, racks: str = "", spans: bool = False) -> Cluster:
    """Make nodes n0, n1, … of some sizes; with `spans` two neighbours are one NVLink domain."""
    return Cluster(
        "lab",
        tuple(
            Node(
                f"n{at}",
                tuple(Gpu(GpuId(f"n{at}", index), "a", 1000.0) for index in range(size)),
                cpu_cores=cores,
                host_memory_mib=1e6,
                rack=racks[at] if racks else None,
                nvlink_domain=f"d{at // 2}" if spans else None,
            )
            for at, size in enumerate(sizes)
        ),
    )


def _item(task: str, size: int, blocks: int, cores: float = 0.0, **more: frozenset[GpuId]) -> Item:
    return Item(task, 0, "a", size, blocks, cores, 0.0, **more)


def _placed(
    cluster: Cluster, *items: Item, needs: tuple[CpuNeed, ...] = (), cores: dict[str, float] | None = None
) -> NodeAssignment | None:
    free = {node.id: [gpu.id for gpu in node.gpus] for node in cluster}
    return first_fit(cluster, items, needs, free, cores or {}, {})


def _blocks(found: NodeAssignment | None) -> dict[tuple[int, str], int]:
    assert found is not None
    return found.blocks


def test_a_task_goes_to_the_fullest_node_that_has_room_for_all_of_it() -> None:
    """Of 8, 4 and 2 GPUs left, a task of 3 goes where 4 are; one of 2 where 2 are."""
    cluster = _cluster(8, 4, 2)
    assert _blocks(_placed(cluster, _item("t", 1, 3))) == {(0, "n1"): 3}
    assert _blocks(_placed(cluster, _item("t", 1, 2))) == {(0, "n2"): 2}


def test_large_blocks_go_first() -> None:
    """Single GPUs would else break the only node that holds a block of 4."""
    found = _blocks(_placed(_cluster(4, 3), _item("small", 1, 3), _item("large", 4, 1)))
    assert found == {(1, "n0"): 1, (0, "n1"): 3}


def test_pools_of_one_task_stay_together() -> None:
    """The second pool goes beside the first, though another node is as full."""
    found = _blocks(_placed(_cluster(4, 4), _item("t", 2, 1), _item("t", 1, 2)))
    assert len({name for _, name in found}) == 1


def test_the_nodes_that_a_task_holds_come_first() -> None:
    """It holds a GPU of the emptier node."""
    liked = frozenset({GpuId("n0", 0)})
    assert _blocks(_placed(_cluster(8, 4), _item("t", 1, 2, liked=liked))) == {(0, "n0"): 2}


def test_a_task_stays_in_the_rack_with_room_for_all_of_it() -> None:
    """Rack y holds 6 GPUs; the fullest rack x holds 5 and would send one block elsewhere."""
    cluster = _cluster(3, 2, 4, 4, racks="xxyy")
    found = _placed(cluster, _item("t", 1, 6))
    assert {name for _, name in _blocks(found)} == {"n2", "n3"}
    assert found is not None
    assert not splits_racks(cluster, [_item("t", 1, 6)], found)


def test_racks_that_are_split_are_seen() -> None:
    """Blocks and whole nodes both count; without racks nothing is split."""
    items = [_item("t", 1, 2), _item("u", 1, 1)]
    apart = NodeAssignment({(0, "n0"): 1, (0, "n1"): 1}, {}, {}, {})
    assert splits_racks(_cluster(1, 1, racks="xy"), items, apart)
    assert not splits_racks(_cluster(1, 1, racks="xx"), items, apart)
    assert not splits_racks(_cluster(1, 1), items, apart)
    by_node = NodeAssignment({}, {0: ("n0", "n1")}, {}, {})
    assert splits_racks(_cluster(1, 1, racks="xy"), items, by_node)
    others = NodeAssignment({(0, "n0"): 1, (1, "n1"): 1}, {}, {}, {})
    assert not splits_racks(_cluster(1, 1, racks="xy"), items, others)


def test_cores_limit_the_blocks_of_a_node() -> None:
    """With 3 cores a GPU, a node of 10 cores has room for one block of 2, of which 4 GPUs would hold two."""
    found = _placed(_cluster(4, 4, cores=10.0), _item("t", 2, 2, 3.0))
    assert _blocks(found) == {(0, "n0"): 1, (0, "n1"): 1}
    assert _placed(_cluster(4, 4, cores=10.0), _item("t", 2, 3, 3.0)) is None
    assert _placed(_cluster(4, 4, cores=10.0), _item("t", 2, 2, 3.0), cores={"n0": 4.5}) is None


def test_a_block_larger_than_a_node_takes_whole_nodes_of_one_domain() -> None:
    """Nodes n1 and n2 are free as well, but of different domains."""
    cluster = _cluster(4, 4, 4, 4, spans=True)
    free = {node.id: [gpu.id for gpu in node.gpus] for node in cluster}
    free["n0"] = free["n0"][1:]
    found = first_fit(cluster, [_item("t", 8, 1)], [], free, {}, {})
    assert found is not None
    assert found.whole_nodes == {0: ("n2", "n3")}
    free["n3"] = free["n3"][1:]
    assert first_fit(cluster, [_item("t", 8, 1)], [], free, {}, {}) is None


def test_workers_go_where_most_cores_are_left() -> None:
    """Three of 4 cores: two on the node with 9 left, one on that with 8."""
    cluster = _cluster(1, 1, cores=9.0)
    found = _placed(cluster, needs=(CpuNeed("t", "env", 3, 4.0, 0.0),), cores={"n0": 1.0})
    assert found is not None
    assert found.workers == {(0, "n1"): 2, (0, "n0"): 1}
    assert _placed(cluster, needs=(CpuNeed("t", "env", 5, 4.0, 0.0),)) is None


def test_gpus_by_id_are_left_to_cpsat() -> None:
    """Best fit counts GPUs and names none."""
    pinned = frozenset({GpuId("n0", 0)})
    assert _placed(_cluster(4), _item("t", 1, 1, pinned=pinned)) is None
    assert _placed(_cluster(4), _item("t", 1, 1, excluded=pinned)) is None


def test_what_finds_no_room_is_told_with_what_is_left() -> None:
    """The first pair took two of the GPUs, so that one is left on each node."""
    cluster = _cluster(3, 1)
    free = {node.id: [gpu.id for gpu in node.gpus] for node in cluster}
    stuck: list[tuple[Item, np.ndarray]] = []
    assert first_fit(cluster, [_item("t", 2, 2)], [], free, {}, {}, stuck) is None
    ((item, left),) = stuck
    assert item.task == "t"
    assert left.tolist() == [1, 1]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_taken_twice_and_everything_is_placed(seed: int) -> None:
    """GPUs and cores node by node, for random blocks on random nodes."""
    rng = np.random.default_rng(seed)
    cluster = _cluster(*(int(rng.integers(1, 9)) for _ in range(4)), cores=12.0)
    items = [
        _item(f"t{n % 3}", int(rng.choice([1, 2, 4])), int(rng.integers(1, 4)), float(rng.choice([0.0, 1.5])))
        for n in range(4)
    ]
    items = [item for item in items if item.block_gpus <= cluster.full_node_gpus["a"]]
    found = _placed(cluster, *items)
    if found is None:
        return
    gpus: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    for (number, name), blocks in found.blocks.items():
        gpus[name] += items[number].block_gpus * blocks
        cores[name] += items[number].cpu_cores_per_gpu * items[number].block_gpus * blocks  # type: ignore[assignment]
    assert all(gpus[node.id] <= len(node.gpus) and cores[node.id] <= 12.0 for node in cluster)
    for number, item in enumerate(items):
        assert sum(blocks for (n, _), blocks in found.blocks.items() if n == number) == item.blocks
