"""Say whether memory bounds drawn from one set of H200 measurements hold for the other, both ways.

    python benchmarks/memory_runs.py

First the reserve for another run (`models/memory/bound.py`), derived from the shapes that both sets
measured. Then how often the upper bounds of profiles of one set cover the reserved peaks of the other,
how wide they are, and whether anything that ran out of memory would be called feasible: with the
reserve as shipped, and with one derived without the model it is tried on.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import places_of
from libra_plan.models.curves.curve import MEMORY_LEVEL, upper_quantile
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.memory.bound import MemoryBound, RunReserve, run_reserve
from libra_plan.models.memory.states import standing_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import LoadedProfile, load_folder, shipped_folder

SETS = ("h200", "h200b")


@dataclass(frozen=True)
class Twice:
    """One shape measured in both sets, MiB: the smaller reserved peak less states, and differences."""

    model: str
    moving: float
    reserved: float
    allocated: float


@dataclass
class Coverage:
    """Bounds of one set against peaks of the other."""

    covered: list[bool] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    refused: int = 0
    oom_called_feasible: int = 0


def pairs() -> list[tuple[LoadedProfile, LoadedProfile]]:
    """List the profiles of one model and phase that both sets have."""
    profiles = load_folder(shipped_folder(), library=()).profiles
    first, second = SETS
    names = [(name, name.replace(f"{second}-", f"{first}-", 1)) for name in sorted(profiles)]
    return [
        (profiles[old], profiles[new])
        for new, old in names
        if new.startswith(f"{second}-") and old in profiles
    ]


def measured_twice() -> Iterator[Twice]:
    """Pair the points of both sets by shape."""
    for old, new in pairs():
        states = standing_mib(old.file, Layout(), 1)
        known = {(p.batch_sequences, p.seq_len_tokens): p for p in old.points if p.status == "ok"}
        for point in new.points:
            other = known.get((point.batch_sequences, point.seq_len_tokens))
            if other is None or point.status != "ok":
                continue
            reserved = sorted(p.peak_reserved_mib or math.nan for p in (point, other))
            allocated = sorted(p.peak_allocated_mib or math.nan for p in (point, other))
            yield Twice(
                old.file.model.id,
                reserved[0] - states,
                reserved[1] - reserved[0],
                allocated[1] - allocated[0],
            )


def derived(twice: Sequence[Twice]) -> RunReserve:
    """Draw the reserve from shapes that were measured twice."""
    mib = max(each.allocated for each in twice)
    shares = [(each.reserved - mib) / each.moving for each in twice]
    return RunReserve(mib, upper_quantile(shares, MEMORY_LEVEL, 0.0))


def compare(fit: FittedProfile, other: LoadedProfile, reserve: RunReserve, found: Coverage) -> None:
    """Ask a fit for the places of the other set's profile."""
    curve = fit.by_layout[Layout()].memory
    assert curve is not None
    bound = MemoryBound(curve, standing_mib(fit.profile, Layout(), 1), reserve)
    for point in other.points:
        assert point.seq_len_tokens is not None
        query = Query(point.batch_sequences, point.seq_len_tokens)
        try:
            value = fit.memory_mib(query).value
        except RefusedError:
            found.refused += point.status == "ok"
            continue
        upper = float(bound.at(places_of([(point.batch_sequences, point.seq_len_tokens, 1.0)]))[0])
        if point.status == "oom":
            found.oom_called_feasible += upper <= other.file.hardware.memory_mib
        elif point.peak_reserved_mib is not None:
            found.covered.append(upper >= point.peak_reserved_mib)
            found.widths.append(upper / value)


def cross_coverage(*, leave_model_out: bool = False) -> dict[tuple[str, str], Coverage]:
    """Try the bounds of each set on the other, by set that was fitted and phase."""
    twice = list(measured_twice())
    found: dict[tuple[str, str], Coverage] = defaultdict(Coverage)
    for both in pairs():
        model = both[0].file.model.id
        others = derived([each for each in twice if each.model != model])
        reserve = others if leave_model_out else run_reserve("h200_sxm")
        for fitted, other, name in ((*both, SETS[0]), (*both[::-1], SETS[1])):
            fit = fit_profile(fitted.file, fitted.points)
            compare(fit, other, reserve, found[name, fitted.file.phase])
    return found


def main() -> None:
    twice = list(measured_twice())
    reserve = derived(twice)
    print(f"{len(twice)} shapes in both sets: {reserve.mib:.1f} MiB + {reserve.share:.4f} of what moves")
    for title, left_out in (("shipped reserve", False), ("reserve derived without the model", True)):
        print(
            f"\n{title:34} {'points':>6} {'covered':>8} {'upper / value':>14} {'p90':>6}  OOM called feasible"
        )
        for (name, phase), found in sorted(cross_coverage(leave_model_out=left_out).items()):
            widths = sorted(found.widths)
            print(
                f"fitted on {name + ',':7} {phase:16} {len(widths):6} "
                f"{sum(found.covered) / len(widths):8.1%} {statistics.median(widths):14.3f} "
                f"{widths[int(0.9 * len(widths))]:6.2f}  {found.oom_called_feasible}"
                + (f" ({found.refused} refused)" if found.refused else "")
            )


if __name__ == "__main__":
    main()
