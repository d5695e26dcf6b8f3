"""The moments between two roles of a pool (A023): a switch never needs more than the pool was given."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import exactly
from libra_plan.planner.configurations.capacity import ClassCapacity
from libra_plan.planner.configurations.pools import pool_options, role_options
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Role, StageOption

CAPACITY = ClassCapacity("a", 8, 1000.0, (8,), 8, ("n0",), {"n0": "n0"})
sizes = st.tuples(*[st.floats(1.0, 400.0)] * 3).map(sorted)


def option_of(memory):
    asleep, static, peak = memory
    time_s = exactly(1.0, "s")
    return StageOption("a", Layout(), 8, time_s, peak, static, asleep, static - asleep, 0.1, 0.1)


@given(st.lists(sizes, min_size=2, max_size=4))
def test_a_switch_fits_in_what_the_pool_was_given(memories):
    """The leaving role sleeps before the entering one wakes, beside what all others leave behind."""
    options = [option_of(memory) for memory in memories]
    roles = [Role(str(at), "reference", (option,)) for at, option in enumerate(options)]
    table = pool_options([role_options(role, {"a": CAPACITY}) for role in roles])
    pools = [each.pool for each in table.all_options() if each.pool.memory_mode is MemoryMode.SLEEP]
    asleep = sum(option.asleep_mib for option in options)
    for pool in pools:
        for leaving, entering in permutations(options, 2):
            others = asleep - leaving.asleep_mib - entering.asleep_mib
            switch = max(leaving.static_mib + entering.asleep_mib, leaving.asleep_mib + entering.static_mib)
            assert switch + others <= pool.peak_mib + 1e-6
