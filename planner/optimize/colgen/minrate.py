"""Price a task whose rate is the least of its roles' rates: exactly, with proof of the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from libra_plan.planner.optimize.colgen.arrays import Floats
from libra_plan.planner.optimize.colgen.form_pricing import TINY, Pricing
from libra_plan.planner.optimize.colgen.fronts import MixRole, TableRole
from libra_plan.planner.optimize.colgen.oracle import Found, Priced
from libra_plan.planner.optimize.colgen.relaxed import Form, Relaxed

__all__ = ["Form", "MinRateTask"]


@dataclass(frozen=True)
class MinRateTask:
    """A task worth `weight` × its rate, run in one of its forms; the pricing oracle of one task."""

    weight: float
    forms: tuple[Form, ...]

    def price(self, prices: Floats, known: float, keep: int = 4, slack: float = 0.0) -> Priced:
        """Find the configuration of the highest reduced value, if it beats `known`, and some near it.

        Where items may count held GPUs twice, up to `slack` the bound may be above the best configuration.
        """
        found: list[Found] = []
        best, bound = known, 0.0
        for number, form in enumerate(self.forms):
            pricing = Pricing(self.weight, form, number, prices)
            upper, configurations = pricing.best(best, keep)
            best = max([best, *(each.reduced for each in configurations)])
            if upper > best + max(slack, TINY) and any(role.held is not None for role in form.mixes):
                upper, more = pricing.beyond(best, upper)
                configurations += more
                best = max([best, *(each.reduced for each in more)])
            bound = max(bound, upper)
            found += configurations
        return Priced(max(bound, known), tuple(found))

    def roughly(self, prices: Floats) -> Priced:
        """Bound the reduced value by splitting replicas, and give that configuration."""
        relaxed = [Relaxed(self.weight, form, prices) for form in self.forms]
        best = max((each for each in relaxed if len(each.rates)), key=_profit, default=None)
        if best is None or _profit(best) <= 0.0:
            return Priced(0.0, ())
        value, demand = best.configuration()
        return Priced(_profit(best), (Found(value, demand, None, value - float(demand @ prices)),))

    def plainly(self, prices: Floats) -> tuple[Found, ...]:
        """Round the best configuration of split replicas up, and one of half its rate."""
        configurations = [
            configuration
            for number, form in enumerate(self.forms)
            for configuration in Pricing(self.weight, form, number, prices).plainly()
        ]
        return tuple(sorted(configurations, key=lambda each: -each.reduced))

    def near(self, prices: Floats, at_least: float, keep: int) -> tuple[Found, ...]:
        """List up to `keep` configurations with a reduced value of `at_least`: each the best at its rate."""
        found = [
            configuration
            for number, form in enumerate(self.forms)
            for configuration in Pricing(self.weight, form, number, prices).near(at_least, keep)
        ]
        return tuple(sorted(found, key=lambda each: -each.reduced)[:keep])

    def every(self, prices: Floats, at_least: float, limit: int) -> tuple[tuple[Found, ...], bool]:
        """List the configurations with a reduced value of `at_least`; False when cut at `limit`."""
        found: list[Found] = []
        complete = True
        for number, form in enumerate(self.forms):
            configurations, all_of_them = Pricing(self.weight, form, number, prices).every(at_least, limit)
            found += configurations
            complete &= all_of_them
        return tuple(found), complete

    def on_rows(self, weights: Floats) -> MinRateTask:
        """Give the same task with demands on other rows."""
        return MinRateTask(self.weight, tuple(form.on_rows(weights) for form in self.forms))

    def demand(self, handle: object) -> Floats:
        """Give what the configuration of a handle takes of each row."""
        number, picks = cast(tuple[int, Sequence[Sequence[tuple[int, int]]]], handle)
        roles: tuple[TableRole | MixRole, ...]
        roles = (*self.forms[number].tables, *self.forms[number].mixes)
        taken = [
            n * role.demand[role.config_id.index(config)]
            for role, own in zip(roles, picks, strict=True)
            for config, n in own
        ]
        return np.asarray(sum(taken), dtype=np.float64)


def _profit(relaxed: Relaxed) -> float:
    return float(relaxed.profit.max())
