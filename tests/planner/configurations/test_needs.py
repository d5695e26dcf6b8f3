"""What configurations ask of nodes, counted by hand."""

from __future__ import annotations

from libra_plan.planner.configurations.needs import fits_where, gpus_at_least, takes_no_more
from libra_plan.planner.plan import Configuration, MemoryMode, Phase, Pool


def configuration(*blocks: tuple[int, int], cores: float = 1.0) -> Configuration:
    """Make a configuration with a pool for each (size, number of blocks)."""
    pools = tuple(Pool("a", (), size, number, MemoryMode.RESIDENT, 0.0, cores) for size, number in blocks)
    return Configuration("t", (Phase(pools),), None, tuple(("a", *each) for each in blocks), 0.0)


def test_odd_rests_do_not_count() -> None:
    """Blocks of eight hold two threes each; a two holds none, and other classes do not count."""
    blocks = [("a", 8, 2), ("a", 2, 5), ("b", 8, 1)]
    assert gpus_at_least(blocks, "a", 3, 8) == 12
    assert gpus_at_least(blocks, "a", 1, 8) == 26
    assert gpus_at_least(blocks, "a", 16, 8) == 0


def test_fewer_gpus_in_large_blocks_fit_wherever_more_do() -> None:
    """Two pairs fit in a block of four, not the other way round; threes take the place of threes only."""
    pairs, four, three = configuration((2, 2)), configuration((4, 1)), configuration((3, 1))
    assert fits_where(pairs, four, {"a": 8})
    assert not fits_where(four, pairs, {"a": 8})
    assert not fits_where(three, four, {"a": 8})
    assert fits_where(three, configuration((3, 2)), {"a": 8})


def test_the_hungriest_gpu_is_compared_with_the_most_modest() -> None:
    """Any GPU may be where the other configuration's most modest one was."""
    assert takes_no_more(configuration((2, 1), cores=1.0), configuration((2, 1), cores=2.0))
    assert not takes_no_more(configuration((2, 1), cores=2.0), configuration((2, 1), cores=1.0))
