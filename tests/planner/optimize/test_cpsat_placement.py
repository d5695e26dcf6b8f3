"""Placement by CP-SAT: what only it can decide, its preferences, and that a limit proves nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize import cpsat_placement
from libra_plan.planner.optimize.assignment import CpuNeed, Item, NodeAssignment, UndecidedError
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.cpsat_placement import assign_nodes
from libra_plan.planner.optimize.first_fit import first_fit

EXACT = SolveParams(deterministic=True)


def _cluster(*sizes: int, cores: float = 0.0, host_mib: float = 0.0, domains: str = "") -> Cluster:
    return Cluster(
        "lab",
        tuple(
            Node(
                f"n{at}",
                tuple(Gpu(GpuId(f"n{at}", index), "a", 1000.0) for index in range(size)),
                cpu_cores=cores,
                host_memory_mib=host_mib,
                nvlink_domain=domains[at] if domains else None,
            )
            for at, size in enumerate(sizes)
        ),
    )


def _item(task: str, size: int, blocks: int, cores: float = 0.0, **more: frozenset[GpuId]) -> Item:
    return Item(task, 0, "a", size, blocks, cores, 0.0, **more)


def _ids(*names: tuple[int, int]) -> frozenset[GpuId]:
    return frozenset(GpuId(f"n{node}", index) for node, index in names)


def _placed(
    cluster: Cluster,
    *items: Item,
    needs: tuple[CpuNeed, ...] = (),
    taken: frozenset[GpuId] = frozenset(),
    cores: Mapping[str, float] | None = None,
    start: NodeAssignment | None = None,
) -> NodeAssignment | None:
    free = {node.id: [gpu.id for gpu in node.gpus if gpu.id not in taken] for node in cluster}
    return assign_nodes(cluster, items, needs, free, cores or {}, {}, EXACT, limit_s=5.0, start=start)


def test_it_packs_what_best_fit_does_not() -> None:
    """Cores of 4, 4, 6 and 6 fill two nodes of 10 as 6 + 4 each; best fit puts both fours on one node."""
    items = [_item(name, 1, 1, cores) for name, cores in (("a", 4.0), ("b", 4.0), ("c", 6.0), ("d", 6.0))]
    cluster = _cluster(4, 4, cores=10.0)
    free = {node.id: [gpu.id for gpu in node.gpus] for node in cluster}
    assert first_fit(cluster, items, [], free, {}, {}) is None
    found = _placed(cluster, *items)
    assert found is not None
    node_of = dict(found.blocks.keys())
    assert node_of[0] != node_of[1]
    assert node_of[2] != node_of[3]


def test_none_means_that_there_is_no_placement() -> None:
    """Three blocks of 2 on two nodes of 3 GPUs: 6 GPUs, and no room."""
    assert _placed(_cluster(3, 3), _item("t", 2, 3)) is None
    assert _placed(_cluster(3, 3), _item("t", 2, 2)) is not None


def test_pinned_gpus_are_taken_and_excluded_ones_are_not() -> None:
    """The pinned pair is all of the task; the other one may not have n1's first GPU."""
    cluster = _cluster(2, 3)
    pinned = _item("p", 2, 1, pinned=_ids((0, 0), (0, 1)))
    other = _item("x", 2, 1, excluded=_ids((1, 0)))
    found = _placed(cluster, pinned, other)
    assert found is not None
    assert found.gpus == {0: _ids((0, 0), (0, 1)), 1: _ids((1, 1), (1, 2))}


def test_a_pinned_gpu_that_is_taken_leaves_no_placement() -> None:
    """Another GPU of the node does not stand for it."""
    pinned = _item("p", 1, 1, pinned=_ids((0, 0)))
    assert _placed(_cluster(3), pinned, taken=_ids((0, 0))) is None
    assert _placed(_cluster(3), pinned, taken=_ids((0, 1))) is not None


def test_one_gpu_is_not_given_to_two_items_by_id() -> None:
    """Both may only have the last GPU."""
    only_last = _ids((0, 0), (0, 1))
    items = [_item(name, 1, 1, excluded=only_last) for name in "xy"]
    assert _placed(_cluster(3), items[0]) is not None
    assert _placed(_cluster(3), *items) is None


def test_a_block_of_several_nodes_stays_in_its_domain() -> None:
    """Of domains x (one free node) and y (two), it takes both of y; with one of y taken it fits nowhere."""
    cluster = _cluster(2, 2, 2, 2, domains="xxyy")
    taken = _ids((0, 0))
    found = _placed(cluster, _item("t", 4, 1), taken=taken)
    assert found is not None
    assert found.whole_nodes == {0: ("n2", "n3")}
    assert _placed(cluster, _item("t", 4, 1), taken=taken | _ids((3, 1))) is None


def test_whole_nodes_leave_no_gpu_to_others() -> None:
    """The block of 4 takes two nodes of 2, a single GPU the third."""
    found = _placed(_cluster(2, 2, 2), _item("w", 4, 1), _item("s", 1, 2))
    assert found is not None
    ((_, alone),) = found.blocks
    assert alone not in found.whole_nodes[0]
    assert _placed(_cluster(2, 2, 2), _item("w", 4, 1), _item("s", 1, 3)) is None


@pytest.mark.parametrize("workers", [3, 7])
def test_equal_parts_of_a_whole_fill_a_node_exactly(workers: int) -> None:
    """Thirds and sevenths of 10 cores are no decimals, and all of them fit in 10."""
    need = CpuNeed("t", "env", workers, 10.0 / workers, 100.0 / workers)
    found = _placed(_cluster(1, cores=10.0, host_mib=100.0), needs=(need,))
    assert found is not None
    assert found.workers == {(0, "n0"): workers}
    assert _placed(_cluster(1, cores=9.99, host_mib=100.0), needs=(need,)) is None
    assert _placed(_cluster(1, cores=10.0, host_mib=99.0), needs=(need,)) is None


def test_cores_that_kept_tasks_use_are_not_there() -> None:
    """Of 10 cores 4 are used, so a GPU with 7 does not fit on that node."""
    found = _placed(_cluster(1, 1, cores=10.0), _item("t", 1, 1, 7.0), cores={"n0": 4.0})
    assert found is not None
    assert found.blocks == {(0, "n1"): 1}


def test_a_start_is_improved_towards_the_gpus_that_the_task_holds() -> None:
    """Best fit would be fine anywhere; the task holds GPUs of n1."""
    item = _item("t", 2, 1, liked=_ids((1, 0), (1, 1)))
    found = _placed(_cluster(2, 2), item, start=NodeAssignment({(0, "n0"): 1}, {}, {}, {}))
    assert found is not None
    assert found.blocks == {(0, "n1"): 1}


def test_fewer_nodes_are_preferred() -> None:
    """Two single GPUs of one task on two nodes come together."""
    start = NodeAssignment({(0, "n0"): 1, (0, "n1"): 1}, {}, {}, {})
    found = _placed(_cluster(2, 2), _item("t", 1, 2), start=start)
    assert found is not None
    assert found.blocks == {(0, "n0"): 2}


def test_a_search_that_ended_early_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a start it is undecided; with one, the start is the answer."""
    monkeypatch.setattr(cpsat_placement, "run_cpsat", lambda *_: cpsat_placement.cp_model.UNKNOWN)
    with pytest.raises(UndecidedError):
        _placed(_cluster(2), _item("t", 1, 1))
    start = NodeAssignment({(0, "n0"): 1}, {}, {}, {})
    assert _placed(_cluster(2), _item("t", 1, 1), start=start) is start
