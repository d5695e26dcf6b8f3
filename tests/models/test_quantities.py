"""Numbers with their unit, bounds and origin."""

import math
from dataclasses import dataclass

import pytest

from libra_plan.models.quantities import Estimate, Origin, exactly, rounded, total


def test_bounds_out_of_order_are_refused():
    """NaN is not between any bounds, so that it cannot get into a plan either."""
    for low, value, high in ((2.0, 1.0, 3.0), (0.0, 4.0, 3.0), (0.0, math.nan, 3.0)):
        with pytest.raises(ValueError, match="bounds out of order"):
            Estimate(value, low, high, "s", Origin.MEASURED)


def test_a_sum_has_the_weakest_origin_and_all_rows_once():
    """Who reads a sum must see that a part of it was assumed."""
    first = Estimate(1.0, 0.5, 2.0, "s", Origin.MEASURED, ("a", "b"))
    both = first.plus(Estimate(2.0, 1.0, 4.0, "s", Origin.ASSUMED, ("b", "c")))
    assert both == Estimate(3.0, 1.5, 6.0, "s", Origin.ASSUMED, ("a", "b", "c"))
    assert total([], "s").origin is Origin.MEASURED
    with pytest.raises(ValueError, match="cannot add"):
        first.plus(exactly(1.0, "MiB"))


@dataclass(frozen=True)
class Nested:
    """Something that holds numbers at several depths."""

    name: str
    count: int
    price: Estimate
    pairs: tuple[tuple[str, float], ...]
    unknown: float | None = None


def test_the_last_bits_are_dropped_at_every_depth():
    """Two processors that differ in the last bit must give the same numbers, and integers stay integers."""
    one, other = 32.269974712134356, 32.26997471213436
    assert one != other

    def nested(value):
        price = Estimate(value, value / 2.0, value * 2.0, "s", Origin.MEASURED)
        return rounded(Nested("x", 7, price, (("y", value),)))

    assert nested(one) == nested(other)
    assert nested(one).count == 7
    assert nested(one).price.value == pytest.approx(one, rel=1e-11)


def test_what_is_round_already_stays_the_same_object():
    """Nothing is copied for nothing, and bounds that are not finite survive."""
    price = exactly(0.25, "s")
    assert rounded(price) is price
    assert rounded(math.inf) == math.inf
