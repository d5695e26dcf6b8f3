"""Predict each measured model from the other sizes only, as the physics prior does.

    python benchmarks/left_out_models.py

One line a model left out and mode, for each set of profiles: median errors, how often the measured
memory lies under the upper bound, and how often the measured time lies within its bounds. Launch-bound
lengths count in. Memory is compared with peak reserved.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from libra_plan.models.costs.base import places_of
from libra_plan.models.curves.curve import CurveSample
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.priors.models import prior_for
from libra_plan.models.quantities import Estimate
from libra_plan.profiles.catalog import load_profile, shipped_folder

SETS = ("h200", "h200b")
MODES = ("decode", "decode-gqa", "score", "train")
TIME_GOAL, MEMORY_GOAL, COVERED_GOAL = 15.0, 8.0, 95.0


@dataclass(frozen=True)
class LeftOut:
    """How one model is predicted from the others, in %, over so many places."""

    name: str
    places: int
    time: float
    time_covered: float
    memory: float
    memory_covered: float

    def missed(self) -> bool:
        return self.time > TIME_GOAL or self.memory > MEMORY_GOAL or self.memory_covered < COVERED_GOAL

    def __str__(self) -> str:
        return (
            f"{self.name:30} {self.places:6} {self.time:7.1f} % {self.time_covered:7.0f} % "
            f"{self.memory:7.1f} % {self.memory_covered:7.0f} %  {'MISSED' if self.missed() else 'met'}"
        )


HEADER = (
    f"{'model left out':30} {'places':>6} {'time':>9} {'covered':>9} {'memory':>9} {'covered':>9}  "
    f"time ≤ {TIME_GOAL:g}, memory ≤ {MEMORY_GOAL:g}, covered ≥ {COVERED_GOAL:g}"
)


def fitted(set_name: str, mode: str) -> list[FittedProfile]:
    """Fit the profiles of one set and mode that have a sweep."""
    loaded = [load_profile(folder) for folder in sorted(shipped_folder().glob(f"{set_name}-*-{mode}"))]
    found = [fit_profile(profile.file, profile.points) for profile in loaded]
    return [profile for profile in found if profile.layouts]


def left_out(profiles: Sequence[FittedProfile]) -> Iterator[LeftOut]:
    """Leave out every profile once."""
    for profile in profiles:
        prior = prior_for(profile.profile, [other for other in profiles if other is not profile])
        (fit,) = profile.fits
        assert fit.time is not None
        assert fit.memory is not None
        times = [(prior.times_s(places_of([each.place]))[0], each) for each in fit.time.samples]
        memories = [(prior.memories_mib(places_of([each.place]))[0], each) for each in fit.memory.samples]
        yield LeftOut(
            profile.profile.id,
            len(times),
            _median(times),
            100 * float(np.mean([guess.low <= each.value <= guess.high for guess, each in times])),
            _median(memories),
            100 * float(np.mean([guess.high >= each.value for guess, each in memories])),
        )


def _median(pairs: Iterable[tuple[Estimate, CurveSample]]) -> float:
    return 100 * statistics.median(abs(guess.value / each.value - 1) for guess, each in pairs)


def table() -> list[LeftOut]:
    """Leave out every shipped model once, in every set and mode."""
    return [row for set_name in SETS for mode in MODES for row in left_out(fitted(set_name, mode))]


def main() -> None:
    print(HEADER)
    for row in table():
        print(row)


if __name__ == "__main__":
    main()
