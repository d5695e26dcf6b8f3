"""Fit the site: GPUs, failures, costs of moves, errors of models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from libra_plan.planner.simulate.fit.evidence import (
    LEAST_STEPS,
    FitFindings,
    Recorded,
    six_digits,
)
from libra_plan.planner.simulate.world import Failures, Site, SwitchCosts, World
from libra_plan.profiles.switch_costs import FEWEST

__all__ = ["fit_error", "fit_failures", "fit_site", "fit_switching"]

_LEAST_FAILURES = 3


def fit_site(world: World, seen: Recorded, most_placed: int, found: FitFindings, *, told: bool) -> Site:
    """Return the GPUs that were watched, else those that the user stated, or at least what a role held."""
    gpus = seen.gpus or most_placed
    if gpus <= (0 if told else world.site.gpus) and not seen.gpus:
        found.keep("site", "the GPUs of the site were not recorded, and no role held more than these")
        return world.site
    if most_placed > gpus:
        found.doubts.append(f"site: {most_placed} GPUs were held, {gpus} watched")
        gpus = most_placed
    of = "GPUs watched" if seen.gpus else "GPUs held"
    found.add("site.gpus", gpus, gpus, of, "their number")
    per_node = seen.gpus_per_node or world.site.gpus_per_node
    return msgspec.structs.replace(world.site, gpus=gpus, gpus_per_node=min(per_node, gpus))


def fit_failures(world: World, seen: Recorded, found: FitFindings) -> Failures | None:
    """Return GPU-hours ÷ failures, and the law of repairs."""
    from scipy.stats import chi2

    count, hours, base = seen.failures, seen.gpu_hours, world.failures
    if count < _LEAST_FAILURES:
        why = f"{count} failures in {hours:,.1f} GPU-hours, {_LEAST_FAILURES} are the least"
        if count == 0 and hours > 0.0:
            why += f" (19 times in 20 a GPU fails less than once in {hours / 3.0:,.0f} h, then)"
        found.keep("failures" if base else "failures: none", why)
        return base
    low, high = 2.0 * hours / chi2.ppf(0.95, 2 * count + 2), 2.0 * hours / chi2.ppf(0.05, 2 * count)
    mtbf = hours / count
    how = f"{hours:,.1f} GPU-hours ÷ failures"
    found.add("failures.mtbf_hours", mtbf, count, "failures", how, unit="h", span=(low, high))
    if len(seen.repairs_s) >= _LEAST_FAILURES:
        logs = np.log(np.array(seen.repairs_s))
        median, sigma = float(np.exp(np.median(logs))), float(logs.std(ddof=1))
        how = f"the median; sigma {sigma:.2f}"
        number = len(seen.repairs_s)
        found.add("failures.repair_median_s", median, number, "repairs", how, unit="s")
    elif base is not None:
        median, sigma = base.repair_median_s, base.repair_sigma
        found.keep("failures.repair", f"{len(seen.repairs_s)} repairs ended, {_LEAST_FAILURES} are the least")
    else:
        found.keep("failures: none", "how long repairs take was not recorded, and the base world has none")
        return None
    return Failures(
        mtbf_hours=six_digits(mtbf), repair_median_s=six_digits(median), repair_sigma=six_digits(sigma)
    )


def fit_switching(world: World, seen: Recorded, found: FitFindings) -> SwitchCosts:
    """Fit starts, saving and loading from recorded moves: least, median and greatest."""
    base, tasks = world.switching, world.task_of
    saved = {name: task.costs.state_gib for name, task in tasks.items()}
    loaded = {name: task.costs.state_gib + task.costs.weights_gib for name, task in tasks.items()}
    starts = list(seen.starts_s)
    for name, with_save, seconds in seen.whole_starts:
        if name in tasks:
            saving = saved[name] / base.save_gib_per_s[1] if with_save else 0.0
            starts.append(max(0.0, seconds - saving - loaded[name] / base.load_gib_per_s[1]))
    saves = [saved[name] / s for name, s in seen.saves_s if name in tasks and s > 0]
    loads = [loaded[name] / s for name, s in seen.loads_s if name in tasks and s > 0]
    return msgspec.structs.replace(
        base,
        start_s=_triangle("start_s", "s", starts, base.start_s, found),
        save_gib_per_s=_triangle("save_gib_per_s", "GiB/s", saves, base.save_gib_per_s, found),
        load_gib_per_s=_triangle("load_gib_per_s", "GiB/s", loads, base.load_gib_per_s, found),
    )


def _triangle(
    name: str, unit: str, values: Sequence[float], base: tuple[float, float, float], found: FitFindings
) -> tuple[float, float, float]:
    values = [each for each in values if each > 0.0 or name == "start_s"]
    if not found.enough(f"switching.{name}", len(values), FEWEST, "moves tell it"):
        return base
    low, middle, high = min(values), float(np.median(values)), max(values)
    how = "the median; it is from least to greatest"
    found.add(f"switching.{name}", middle, len(values), "moves", how, unit=unit, span=(low, high))
    return six_digits(low), six_digits(middle), six_digits(high)


def fit_error(world: World, seen: Recorded, found: FitFindings) -> float:
    """Return the spread of ln(realised ÷ predicted) of roles' times after moves."""
    if not found.enough("model_error", len(seen.errors), LEAST_STEPS, "predictions with their outcome"):
        return world.model_error
    spread = float(np.sqrt(np.mean(np.square(seen.errors))))
    part = 1.645 * spread / math.sqrt(2.0 * len(seen.errors))
    how = "root of the mean square of ln(realised ÷ predicted)"
    found.add(
        "model_error", spread, len(seen.errors), "predictions", how, span=(spread - part, spread + part)
    )
    return six_digits(spread)
